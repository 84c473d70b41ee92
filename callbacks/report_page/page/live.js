// -- the pages of `troupe serve`: all runs of a folder, one of them, several side by side, or a sweep, as they change

const live = { source: null, token: '', run: '', stop: null, chosen: new Set(), kind: '', document: null };

/// The server takes several names, one a line, for a comparison.
const compared = names => [...names].join('\n');
const isCompared = name => name.includes('\n');

const linkTo = run => `#${new URLSearchParams({ token: live.token, ...run ? { run } : {} })}`;

const drawings = { runs: drawList, run: drawLiveRun, sweep: drawLiveSweep, comparison: drawLiveComparison, problem: ({ message }) => sayState(message) };

function drawLive(kind, next) {
  Object.assign(live, { kind, document: next });
  drawings[kind](next);
}

/// What *old*, which stays as it is, becomes by *news* of the server; document_news.hpp says what is in them.
function changed(old, news) {
  if ('is' in news) return news.is;
  if ('keep' in news) {
    const kept = old.slice(news.skip, news.skip + news.keep);
    for (const [i, x] of Object.entries(news.items ?? {})) kept[i] = changed(kept[i], x);
    return kept.concat(news.add);
  }
  const result = { ...old };
  for (const name of news.gone ?? []) delete result[name];
  for (const [name, x] of Object.entries(news.fields ?? {})) result[name] = changed(result[name], x);
  return result;
}

/// Shows what the address asks for; anything else that was shown goes.
function startLive() {
  const place = new URLSearchParams(location.hash.slice(1));
  live.token = place.get('token') ?? '';
  live.run = place.get('run') ?? '';
  live.stop = live.run && !isCompared(live.run) ? stopButtons(live.run) : null;
  charts.length = 0;
  view.filter = '';
  Object.assign(sweepView, { ranges: new Map(), sort: null, isHeld: false, later: null });
  document.title = isCompared(live.run) ? 'Compared runs' : live.run || 'Runs';
  applyTheme(remembered('theme', 'auto', options.theme));
  const toolbar = document.getElementById('toolbar');
  toolbar.replaceChildren();
  toolbar.hidden = true;
  document.querySelector('header').replaceChildren(element('h1', {}, document.title));
  document.querySelector('main').replaceChildren(hint('Waiting for the server.'));
  listen();
}

/// Hears from the server while the page is shown, beginning with the whole document. A browser has at most six connections to a server,
/// over all of its pages: those that no one sees hold none.
function listen() {
  live.source?.close();
  live.source = null;
  if (document.hidden) return;
  const source = new EventSource(`/events?${new URLSearchParams({ token: live.token, run: live.run })}`);
  live.source = source;
  const on = (kind, take) => source.addEventListener(kind, event => {
    try { take(JSON.parse(event.data)); } catch (error) { document.querySelector('main').replaceChildren(failure('This page', error)); }
  });
  for (const kind of Object.keys(drawings)) on(kind, next => drawLive(kind, next));
  on('news', news => drawLive(live.kind, changed(live.document, news)));
  source.addEventListener('open', () => sayState(''));
  source.addEventListener('error', () => sayState(source.readyState === EventSource.CLOSED
    ? 'The server does not let this page in. Open the address that it printed; if many of its pages are open, close some.'
    : 'The server cannot be reached. The page shows what was last known.'));
}

/// A line above the page, if there is something to say.
function sayState(text) {
  document.getElementById('state')?.remove();
  if (text) document.body.prepend(element('div', { id: 'state', role: 'status' }, text));
}

function drawLiveRun({ name, state, can_stop: canStop, run }) {
  drawCurves({ ...run, name, status: state }, canStop);
}

function drawLiveComparison({ comparison }) {
  drawCurves({ ...comparison }, false);
}

/// Draws *next*, and leaves the reader's place in the page and its curves.
function drawCurves(next, canStop) {
  const [left, top, focus] = [scrollX, scrollY, document.activeElement];
  const chart = focus?.closest?.('.chart')?.dataset.name;
  const cursors = new Map(charts.map(x => [x.axisName(), x.cursor]));
  sayState('');
  drawPage(next);
  document.querySelector('header').prepend(pagesNav());
  if (canStop) document.querySelector('.title').append(live.stop);
  for (const x of charts) x.cursor = cursors.get(x.axisName()) ?? null;
  for (const x of charts) if (x.cursor !== null && !x.figure.hidden) x.show();
  if (live.stop?.contains(focus)) focus.focus();
  else if (chart) charts.find(x => x.title === chart)?.plot.focus({ preventScroll: true });
  scrollTo(left, top);
}

function drawLiveSweep(news) {
  if (sweepView.isHeld) {
    sweepView.later = () => drawLiveSweep(news);
    return;
  }
  const { name, can_stop: canStop, sweep } = news;
  const [left, top, focus] = [scrollX, scrollY, document.activeElement];
  const [axis, column] = [focus?.closest?.('.axis')?.dataset.name, focus?.dataset?.column];
  sayState('');
  drawPage({ ...sweep, name, isLive: true });
  document.querySelector('header').prepend(pagesNav());
  if (canStop) document.querySelector('.title').append(live.stop);
  if (live.stop.contains(focus)) focus.focus();
  if (axis !== undefined) [...document.querySelectorAll('.axis')].find(x => x.dataset.name === axis)?.querySelector('.grip').focus({ preventScroll: true });
  if (column) [...document.querySelectorAll('#trials [data-column]')].find(x => x.dataset.column === column)?.focus({ preventScroll: true });
  scrollTo(left, top);
}

/// Where the reader came from: all runs and, of a trial, its sweep.
function pagesNav() {
  const sweep = live.run.includes('/') && !isCompared(live.run) ? live.run.slice(0, live.run.indexOf('/')) : '';
  return element('nav', { 'aria-label': 'Pages' }, element('a', { href: linkTo() }, 'All runs'), ...sweep ? [element('a', { href: linkTo(sweep) }, sweep)] : []);
}

/// Buttons that ask once more before they end the run or the sweep.
function stopButtons(run) {
  const said = element('span', { class: 'hint', role: 'status' });
  const button = (text, preempt) => {
    const result = element('button', { type: 'button' }, text);
    let asked = null;
    const calm = () => { asked = null; result.textContent = text; };
    result.addEventListener('click', async () => {
      if (asked === null) {
        asked = setTimeout(calm, 5000);
        result.textContent = `${text}: sure?`;
        return;
      }
      clearTimeout(asked);
      calm();
      live.source?.close(); // All connections may be taken, by windows side by side.
      try {
        const answer = await fetch(`/stop?${new URLSearchParams({ run, preempt })}`, { method: 'POST', headers: { Authorization: `Bearer ${live.token}` } });
        said.textContent = (await answer.text()).trim();
      } catch { said.textContent = 'The server cannot be reached.'; }
      listen();
    });
    return result;
  };
  return element('span', { class: 'stop' }, button('Stop', 0), button('Stop after a checkpoint', 1), said);
}

/// A row for each sweep, the newest first.
function sweepRows(sweeps) {
  const counts = ({ trials, planned }) => [`${trials.finished}${planned === null ? '' : ` of ${planned}`} finished`,
    ...['failed', 'running', 'stopped'].filter(x => trials[x]).map(x => `${trials[x]} ${x}`)].join(', ');
  const best = x => x.best === null ? '' : `${x.metric} ${typeof x.best.score === 'number' ? numberText(x.best.score) : x.best.score} (${x.best.trial})`;
  return [...sweeps].sort((a, b) => (b.started ?? '').localeCompare(a.started ?? '')).map(x => [element('a', { href: linkTo(x.name) }, x.name),
    element('span', { class: 'status', 'data-status': x.state }, x.state), counts(x), x.started ? timeElement(Date.parse(x.started) / 1000) : '',
    x.seconds === null ? '' : timeText(x.seconds), best(x), [x.reason, ...x.problems.map(y => y.message)].filter(y => y).join('; ')]);
}

/// A box that chooses *name* for a comparison.
function choiceOf(name) {
  const box = element('input', { type: 'checkbox', 'data-run': name, 'aria-label': `Compare ${name}` });
  box.checked = live.chosen.has(name);
  box.addEventListener('change', () => {
    live.chosen[box.checked ? 'add' : 'delete'](name);
    sayChosen();
  });
  return box;
}

/// Leads to the comparison of the runs that are chosen.
function sayChosen() {
  const names = [...live.chosen];
  document.getElementById('compare').replaceChildren(names.length < 2 ? 'Choose runs to compare them.'
    : names.length > live.document.max_compared ? `${names.length} runs are chosen; ${live.document.max_compared} can be compared.` : element('a', { href: linkTo(compared(names)) }, `Compare ${names.length} runs`));
}

function drawList({ storage, runs, sweeps, complaints }) {
  data = { begin: 0 }; // of the times
  const started = x => x.started ? timeElement(Date.parse(x.started) / 1000) : '';
  const score = x => x.score === null ? '' : `${x.score_name} ${typeof x.score === 'number' ? numberText(x.score) : x.score}`;
  for (const name of live.chosen) if (!runs.some(x => x.name === name)) live.chosen.delete(name);
  const rows = [...runs].sort((a, b) => (b.started ?? '').localeCompare(a.started ?? '')).map(x => [element('span', { class: 'run' },
    choiceOf(x.name), element('a', { href: linkTo(x.name) }, x.name)), element('span', { class: 'status', 'data-status': x.state }, x.state), x.reports, x.restarts, x.checkpoints, started(x),
    x.seconds === null ? '' : timeText(x.seconds), score(x), [x.error, ...x.problems.map(y => y.message)].filter(y => y).join('; ')]);
  const place = x => x?.getAttribute('href') ?? x?.dataset?.run;
  const focus = place(document.activeElement);
  document.querySelector('header').replaceChildren(element('div', { class: 'title' }, element('h1', {}, 'Runs'), element('span', { class: 'hint' }, storage)),
    ...complaints.length ? [notice('', 'Not everything in this folder could be shown.', element('ul', {}, ...complaints.map(x => element('li', {}, x))))] : []);
  const lists = [];
  if (sweeps.length) lists.push(element('h2', {}, 'Sweeps'), table('Sweeps', [['Sweep'], ['Status'], ['Trials'], ['Began (UTC)'], ['Time span', 'number'],
    ['Best', 'number'], ['Reason', 'long']], sweepRows(sweeps)));
  if (sweeps.length && rows.length) lists.push(element('h2', {}, 'Runs'));
  if (rows.length || !sweeps.length) lists.push(rows.length ? table('Runs', [['Run'], ['Status'], ['Reports', 'number'], ['Restarts', 'number'],
    ['Checkpoints', 'number'], ['Began (UTC)'], ['Time span', 'number'], ['Last score', 'number'], ['Error', 'long']], rows) : hint('There are no runs yet.'));
  if (rows.length) lists.push(element('p', { id: 'compare', class: 'hint' }));
  document.querySelector('main').replaceChildren(...lists);
  if (rows.length) sayChosen();
  sayState('');
  if (focus) [...document.querySelectorAll('main a, main input')].find(x => place(x) === focus)?.focus({ preventScroll: true });
}
