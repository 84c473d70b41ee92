// -- controls

function choice(name, options, now, change) {
  const inputs = options.map(([value, label]) => {
    const input = element('input', { type: 'radio', name, value });
    input.checked = value === now;
    input.addEventListener('change', () => change(value));
    return element('label', {}, input, element('span', {}, label));
  });
  return element('fieldset', { class: name }, element('legend', {}, { over: 'X axis', scale: 'Y axis', theme: 'Theme' }[name]),
    element('div', { class: 'choice' }, ...inputs));
}

function remembered(name, fallback, known) {
  try {
    const value = localStorage.getItem(`troupe-report-${name}`);
    return known.some(([option]) => option === value) ? value : fallback;
  } catch { return fallback; }
}

function remember(name, value) {
  try { localStorage.setItem(`troupe-report-${name}`, value); } catch { /* A browser may forbid it for files. */ }
}

const options = {
  over: [['report', 'Report'], ['time', 'Time']],
  scale: [['linear', 'Linear'], ['log', 'Log']],
  theme: [['auto', 'Auto'], ['light', 'Light'], ['dark', 'Dark']],
};

function applyTheme(value) {
  if (value === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
}

/// Once, and again when there are so many charts that a filter helps.
function buildToolbar() {
  const toolbar = document.getElementById('toolbar');
  if (toolbar.childElementCount && !!toolbar.querySelector('[type="search"]') === charts.length > 6) return;
  toolbar.replaceChildren();
  for (const name of data.sweep ? [] : ['over', 'scale']) {
    view[name] = remembered(name, view[name], options[name]);
    toolbar.append(choice(name, options[name], view[name], value => {
      view[name] = value;
      remember(name, value);
      drawAll();
    }));
  }
  if (charts.length > 6) {
    const filter = element('input', { type: 'search', placeholder: 'Filter metrics', 'aria-label': 'Filter metrics by name' });
    filter.addEventListener('input', () => {
      view.filter = filter.value.trim().toLowerCase();
      showOnly(view.filter);
    });
    toolbar.append(filter);
  }
  const theme = remembered('theme', 'auto', options.theme);
  applyTheme(theme);
  toolbar.append(choice('theme', options.theme, theme, value => {
    applyTheme(value);
    remember('theme', value);
  }));
  toolbar.hidden = false;
}

function showOnly(text) {
  for (const chart of charts) chart.figure.hidden = !chart.title.toLowerCase().includes(text);
  for (const head of document.querySelectorAll('.charts h4')) {
    let next = head.nextElementSibling;
    while (next && next.matches('.chart') && next.hidden) next = next.nextElementSibling;
    head.hidden = !next || !next.matches('.chart');
  }
  drawAll();
}

/// What lines and marks mean; only what the page has.
function buildKey() {
  const sample = (...children) => element('svg', { width: 22, height: 12, viewBox: '0 0 22 12', style: '--color:var(--curve-0)', 'aria-hidden': 'true' }, ...children);
  const all = charts.flatMap(chart => chart.curves);
  const entries = data.runs ? data.runs.map(({ name }, i) => [sampleOf(lookOf(i)), name])
    : [[sample(element('path', { class: 'curve', d: 'M1,6H21' })), 'mean over ranks']];
  if (all.some(curve => curve.min)) entries.push([sample(element('path', { class: 'band', d: 'M1,1H21V11H1Z' }), element('path', { class: 'curve', d: 'M1,6H21' })),
    all.some(curve => curve.axis.of) ? 'lowest to highest, over ranks and the reports of a point' : 'lowest to highest rank']);
  if (data.checkpoints.marks.length) entries.push([sample(element('path', { class: 'checkpoint', d: 'M11,2l4,4l-4,4l-4,-4Z' })), 'checkpoint']);
  if (data.checkpoints.marks.some(x => x.best)) entries.push([sample(element('path', { class: 'checkpoint best', d: 'M11,1.5l4.5,4.5l-4.5,4.5l-4.5,-4.5Z' })), 'best checkpoint']);
  if (data.attempts.last.length > 1) entries.push([sample(element('path', { class: 'restart', d: 'M1,6H21' })), 'restart']);
  if (all.some(curve => curve.bad)) entries.push([sample(element('path', { class: 'bad', d: 'M7,2h8l-4,7Z' })), 'NaN or infinite']);
  return element('ul', { class: 'key', 'aria-label': 'Key' }, ...entries.map(([icon, text]) => element('li', {}, icon, text)));
}

/// The charts of a group. Metrics of one prefix (`val/…`) stand together, below its name; those without one come first.
function chartGrid(name) {
  const group = data.groups[name];
  const prefix = ({ title }) => title.includes('/') ? title.slice(0, title.indexOf('/')) : '';
  const grid = element('div', { class: 'charts', 'data-group': name });
  const sorted = name === 'times' ? group.charts : [...group.charts].sort((a, b) => (prefix(a) !== '') - (prefix(b) !== ''));
  let now = '';
  for (const spec of sorted) {
    if (name !== 'times' && prefix(spec) !== now) {
      now = prefix(spec);
      grid.append(element('h4', {}, now));
    }
    const chart = new Chart(spec, group.over);
    charts.push(chart);
    grid.append(chart.figure);
  }
  return grid;
}
