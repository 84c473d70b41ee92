// -- a sweep: its trials as lines over parallel axes, and as a table that sorts

const sweepView = {
  ranges: new Map(), // [low, high] of the brushed axes by name, as shares of the axis' height from its top
  sort: null, // { column, falls } once the reader has chosen
  isHeld: false, // a drag is under way: what it holds must stay
  later: null, // what to draw after that
};

const sortNow = () => sweepView.sort ?? { column: 'score', falls: data.sweep.order === 'max' };

const axisGap = 118; // pixels between two axes, at least
const plotArea = { top: 34, bottom: 30, side: 64, height: 400 };

const isBetter = (a, b) => data.sweep.order === 'max' ? a > b : a < b;

/// A value that may be missing, as text.
const valueText = x => x === null || x === undefined ? '–' : typeof x === 'number' ? numberText(x) : String(x);

/// The axes of the params, then that of the metric. `at` returns where a value is, as a share of the height from the top;
/// nothing if it has no place.
function sweepAxes() {
  const axes = data.axes.map((x, i) => axisOf(x, trial => trial.values[i]));
  const scores = data.trials.map(x => x.score).filter(x => typeof x === 'number');
  if (scores.length) {
    const [low, high] = [Math.min(...scores), Math.max(...scores)];
    axes.push({ ...axisOf({ name: data.sweep.metric, kind: 'number', low, high, log: low > 0 && high / low >= 1000 }, trial => trial.score), isScore: true });
  }
  return axes;
}

function axisOf({ name, kind, log, low, high, values }, valueOf) {
  const place = kind === 'choice' ? choiceAxis(values) : numberAxis(low, high, log, kind === 'integer', data.trials.map(valueOf));
  return { name, valueOf, ...place };
}

function choiceAxis(values) {
  const index = new Map(values.map((x, i) => [String(x), i]));
  const share = i => values.length < 2 ? 0.5 : 1 - i / (values.length - 1);
  return {
    at: x => index.has(String(x)) ? share(index.get(String(x))) : undefined,
    ticks: values.map((x, i) => [share(i), String(x)]),
  };
}

function numberAxis(low, high, log, isInteger, seen) {
  const numbers = [low, high, ...seen].filter(x => typeof x === 'number' && (!log || x > 0));
  [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const scale = low === high ? () => 0.5 : makeScale(low, high, 1, 0, log);
  const step = roundStep(high - low, 6);
  let ticks = low === high ? [low] : log ? logTicks(low, high, 6) : linearTicks(low, high, isInteger ? Math.max(1, step) : step);
  if (ticks.length < 2) ticks = [low, high];
  return {
    at: x => typeof x === 'number' && (!log || x > 0) ? scale(x) : undefined,
    ticks: ticks.map(x => [scale(x), log || ticks.length < 3 ? numberText(x, 3) : tickText(x, step)]),
  };
}

/// The color of each trial: the better its score among the others, the more of the accent.
function trialColors() {
  const ranked = data.trials.map((x, i) => [x.score, i]).filter(([x]) => typeof x === 'number')
    .sort(([a], [b]) => a === b ? 0 : isBetter(a, b) ? -1 : 1);
  const colors = data.trials.map(x => x.status === 'errored' ? 'var(--bad)' : 'var(--quiet)');
  ranked.forEach(([, i], rank) => {
    const share = ranked.length < 2 ? 100 : Math.round(100 - 100 * rank / (ranked.length - 1));
    colors[i] = `color-mix(in srgb, var(--accent) ${share}%, var(--curve-4))`;
  });
  if (data.sweep.best !== undefined) colors[data.sweep.best] = 'var(--good)';
  return colors;
}

/// Whether *trial* is within all brushed ranges.
function isChosen(trial, axes) {
  return axes.every(axis => {
    const range = sweepView.ranges.get(axis.name);
    const at = axis.at(axis.valueOf(trial));
    return !range || (at !== undefined && at >= range[0] - 1e-9 && at <= range[1] + 1e-9);
  });
}

/// Hides what no brush has chosen, in the plot and in the table.
function showChosen() {
  const axes = sweepAxes();
  const chosen = data.trials.map(x => isChosen(x, axes));
  for (const line of document.querySelectorAll('#coordinates path[data-trial]')) line.classList.toggle('dim', !chosen[line.dataset.trial]);
  for (const row of document.querySelectorAll('#trials tr[data-trial]')) row.hidden = !chosen[row.dataset.trial];
  const count = chosen.filter(x => x).length;
  const said = document.querySelector('#coordinates .chosen');
  if (said) said.textContent = sweepView.ranges.size ? `${count} of ${chosen.length} trials chosen.` : 'Drag along an axis to choose trials; a click on it frees it again.';
  const clear = document.querySelector('#coordinates .clear');
  if (clear) clear.hidden = !sweepView.ranges.size;
}

/// Says in a line what trial *i* is, and marks it in the plot; nothing: none.
function pointAt(i) {
  for (const line of document.querySelectorAll('#coordinates path[data-trial]')) line.classList.toggle('pointed', Number(line.dataset.trial) === i);
  const said = document.querySelector('#coordinates .readout');
  if (!said) return;
  const x = data.trials[i];
  said.textContent = !x ? '' : [x.name, `${data.sweep.metric} ${valueText(x.score ?? x.last)}`,
    ...data.axes.map(({ name }, k) => `${name} ${valueText(x.values[k])}`)].join(' · ');
}

// A line through the places of a trial; it is interrupted where a value is missing.
function linePath(trial, axes, x, y) {
  let path = '', last = false;
  axes.forEach((axis, i) => {
    const at = axis.at(axis.valueOf(trial));
    if (at !== undefined) path += `${last ? 'L' : 'M'}${px(x(i))},${px(y(at))}`;
    last = at !== undefined;
  });
  return path;
}

class ParallelPlot {
  constructor() {
    this.axes = sweepAxes();
    this.svg = element('svg', { class: 'parallel', role: 'img', 'aria-label': `${data.trials.length} trials over ${this.axes.map(x => x.name).join(', ')}` });
    this.box = element('div', { class: 'table plotbox' }, this.svg);
    this.box.plot = this;
    this.render();
  }

  render() {
    const { top, bottom, side, height } = plotArea;
    const room = document.querySelector('main').clientWidth - 72;
    const width = Math.max(room, 2 * side + (this.axes.length - 1) * axisGap);
    const gap = this.axes.length < 2 ? 0 : (width - 2 * side) / (this.axes.length - 1);
    this.x = i => side + (this.axes.length < 2 ? (width - 2 * side) / 2 : i * gap);
    this.y = share => top + share * (height - top - bottom);
    for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) this.svg.setAttribute(key, value);
    const colors = trialColors();
    // The best one lies above all others.
    const order = data.trials.map((x, i) => i).sort((a, b) => (a === data.sweep.best) - (b === data.sweep.best));
    const lines = order.map(i => {
      const best = i === data.sweep.best ? ' best' : '';
      const line = element('path', { class: `trial${best}`, 'data-trial': i, style: `--color:${colors[i]}`, d: linePath(data.trials[i], this.axes, this.x, this.y) });
      line.addEventListener('pointerenter', () => pointAt(i));
      line.addEventListener('pointerleave', () => pointAt());
      return line;
    });
    this.svg.replaceChildren(...lines, ...this.axes.map((axis, i) => this.buildAxis(axis, i)));
    showChosen();
  }

  buildAxis(axis, i) {
    const [x, from, to] = [this.x(i), this.y(0), this.y(1)];
    const last = this.axes.length > 1 && i === this.axes.length - 1;
    const brush = element('path', { class: 'brush' });
    const grip = element('path', { class: 'grip', tabindex: 0, role: 'button', 'aria-label': `Choose trials by ${axis.name}`,
      d: `M${px(x - 16)},${px(from - 8)}H${px(x + 16)}V${px(to + 8)}H${px(x - 16)}Z` });
    const show = () => {
      const range = sweepView.ranges.get(axis.name);
      brush.setAttribute('d', range ? `M${px(x - 8)},${px(this.y(range[0]))}H${px(x + 8)}V${px(this.y(range[1]))}H${px(x - 8)}Z` : '');
    };
    show();
    this.listen(grip, axis, show);
    return element('g', { class: `axis${axis.isScore ? ' score' : ''}`, 'data-name': axis.name },
      element('path', { class: 'base', d: `M${px(x)},${px(from)}V${px(to)}` }),
      ...axis.ticks.flatMap(([share, text]) => [element('path', { class: 'base', d: `M${px(x - 4)},${px(this.y(share))}H${px(x + 4)}` }),
        this.label(text, last ? x - 8 : x + 8, this.y(share) + 4, last ? 'end' : 'start', 14)]),
      this.label(axis.name, x, from - 16, 'middle', 18, 'title'), brush, grip);
  }

  label(text, x, y, anchor, most, name = 'tick') {
    const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
    return element('text', { class: name, x: px(x), y: px(y), 'text-anchor': anchor }, short, element('title', {}, text));
  }

  listen(grip, axis, show) {
    const shareAt = event => {
      const box = this.svg.getBoundingClientRect();
      const y = (event.clientY - box.top) * plotArea.height / (box.height || plotArea.height);
      return Math.min(1, Math.max(0, (y - this.y(0)) / (this.y(1) - this.y(0))));
    };
    const choose = (a, b) => {
      if (Math.abs(a - b) < 0.01) sweepView.ranges.delete(axis.name);
      else sweepView.ranges.set(axis.name, [Math.min(a, b), Math.max(a, b)]);
      show();
      showChosen();
    };
    let first = null;
    grip.addEventListener('pointerdown', event => {
      first = shareAt(event);
      sweepView.isHeld = true;
      try { grip.setPointerCapture(event.pointerId); } catch { /* It was let go already. */ }
      event.preventDefault();
    });
    grip.addEventListener('pointermove', event => { if (first !== null) choose(first, shareAt(event)); });
    const release = () => {
      const draw = sweepView.later;
      [first, sweepView.isHeld, sweepView.later] = [null, false, null];
      draw?.();
    };
    grip.addEventListener('pointerup', event => {
      if (first !== null) choose(first, shareAt(event));
      release();
    });
    grip.addEventListener('pointercancel', release);
    // A fifth of the axis moves by a tenth; Escape frees it.
    grip.addEventListener('keydown', event => {
      const by = { ArrowUp: -0.1, ArrowDown: 0.1 }[event.key];
      if (event.key === 'Escape') choose(0, 0);
      else if (by) {
        const from = Math.min(0.8, Math.max(0, (sweepView.ranges.get(axis.name)?.[0] ?? (by > 0 ? -0.1 : 0.9)) + by));
        choose(from, from + 0.2);
      } else return;
      event.preventDefault();
    });
  }
}

addEventListener('resize', () => document.querySelector('.plotbox')?.plot.render());

function drawCoordinates() {
  if (!data.trials.length) return [hint('No trial has begun yet.')];
  const plot = new ParallelPlot();
  const clear = element('button', { type: 'button', class: 'clear', hidden: '' }, 'Show all');
  clear.addEventListener('click', () => {
    sweepView.ranges.clear();
    plot.render();
  });
  return [element('p', { class: 'hint' }, element('span', { class: 'chosen' }, ''), ' ', clear), plot.box,
    element('p', { class: 'readout', role: 'status' })];
}

// -- the table

function trialColumns() {
  const { metric } = data.sweep;
  return [
    { id: 'name', title: 'Trial', of: x => x.name, show: x => trialLink(x) },
    { id: 'status', title: 'Status', of: x => x.status, show: x => element('span', { class: 'status', 'data-status': x.status }, x.status) },
    { id: 'score', title: metric, kind: 'number', of: x => x.score ?? (typeof x.last === 'number' ? x.last : null), show: (x, i) => scoreCell(x, i) },
    ...data.axes.map(({ name, kind }, k) => ({ id: `param ${name}`, title: name, kind: kind === 'choice' ? '' : 'number', of: x => x.values[k], show: x => valueText(x.values[k]) })),
    { id: 'reports', title: 'Reports', kind: 'number', of: x => x.reports, show: x => x.reports },
    { id: 'seconds', title: 'Time', kind: 'number', of: x => x.seconds, show: x => timeText(x.seconds) },
    { id: 'reason', title: 'Ended because', kind: 'long', of: x => x.reason, show: x => x.reason },
  ];
}

function trialLink(x) {
  if (data.isLive) return element('a', { href: linkTo(`${data.name}/${x.name}`) }, x.name);
  return x.page ? element('a', { href: x.page }, x.name) : x.name;
}

const scoreCell = (x, i) => [valueText(x.score ?? x.last), ...i === data.sweep.best ? [' ', element('span', { class: 'tag best' }, 'best')] : []];

/// Missing values come last, whichever way the others are sorted.
function compareValues(a, b) {
  const rank = x => x === null || x === undefined || x === '' ? 1 : 0;
  if (rank(a) || rank(b)) return [rank(a) - rank(b), false];
  return [typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b)), true];
}

function sortedTrials(columns) {
  const { column, falls } = sortNow();
  const { of } = columns.find(x => x.id === column) ?? columns[0];
  return data.trials.map((x, i) => i).sort((a, b) => {
    const [order, turns] = compareValues(of(data.trials[a]), of(data.trials[b]));
    return (turns && falls ? -order : order) || a - b;
  });
}

function drawTrials() {
  if (!data.trials.length) return [hint('No trial has begun yet.')];
  const columns = trialColumns();
  const head = columns.map(column => {
    const chosen = column.id === sortNow().column;
    const button = element('button', { type: 'button', 'data-column': column.id }, column.title);
    button.addEventListener('click', () => {
      sweepView.sort = { column: column.id, falls: chosen ? !sortNow().falls : false };
      redrawTrials(column.id);
    });
    return element('th', { scope: 'col', ...chosen ? { 'aria-sort': sortNow().falls ? 'descending' : 'ascending' } : {} }, button);
  });
  const rows = sortedTrials(columns).map(i => {
    const [first, ...cells] = columns.map(column => [column, [column.show(data.trials[i], i)].flat()]);
    const row = element('tr', { 'data-trial': i }, element('th', { scope: 'row' }, ...first[1]),
      ...cells.map(([{ kind }, content]) => element('td', kind ? { class: kind } : {}, ...content)));
    row.addEventListener('pointerenter', () => pointAt(i));
    row.addEventListener('pointerleave', () => pointAt());
    return row;
  });
  return [tableBox('Trials', { class: 'sortable' }, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...rows))];
}

function redrawTrials(column) {
  const box = document.querySelector('#trials .table');
  const scrolled = box.scrollLeft;
  const [fresh] = drawTrials();
  box.replaceWith(fresh);
  fresh.scrollLeft = scrolled;
  fresh.querySelector(`button[data-column="${CSS.escape(column)}"]`)?.focus({ preventScroll: true });
  showChosen();
}

const sweepSections = [
  ['coordinates', 'Parallel coordinates', 'Parallel coordinates', drawCoordinates],
  ['trials', 'Trials', 'Trials', drawTrials],
];

function sweepOverview() {
  const count = status => data.trials.filter(x => x.status === status).length;
  const { metric, order, planned, searcher, best } = data.sweep;
  const result = [element('div', { class: 'title' }, element('h1', {}, data.name), element('span', { class: 'status', 'data-status': data.status }, data.status)),
    element('dl', { class: 'facts' }, fact('Finished', planned === undefined ? count('finished') : `${count('finished')} of ${planned}`),
      ...count('running') ? [fact('Running', count('running'))] : [], ...count('errored') ? [fact('Failed', count('errored'))] : [],
      fact(`Best ${metric}, ${order === 'max' ? 'higher' : 'lower'} is better`, best === undefined ? '–' : `${valueText(data.trials[best].score)}, ${data.trials[best].name}`),
      fact('Searcher', searcher), ...data.begin === null ? [] : [fact('Began (UTC)', timeElement(0))])];
  if (data.error) result.push(notice('error', 'The sweep did not come to its end.', element('pre', {}, data.error)));
  return result;
}
