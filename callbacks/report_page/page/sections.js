// -- the sections: each of these returns what stands below its heading

function drawMetrics() {
  const { metrics, logged } = data.groups;
  const result = [];
  if (metrics.charts.length) result.push(chartGrid('metrics'));
  if (logged.charts.length) result.push(element('h3', {}, 'Logged by the train loop'), chartGrid('logged'));
  result.push(result.length ? element('details', {}, element('summary', {}, 'Values as a table'), valueTable())
    : hint('No metric has been reported yet.'));
  if (data.texts?.length) result.push(element('h3', {}, 'Texts, the last of each'), pairs('Texts', data.texts));
  return result;
}

function valueTable() {
  const rows = ['metrics', 'logged'].flatMap(name => data.groups[name].charts.flatMap(({ title, curves }) => curves.map(curve => {
    const [last, at, low, high, count] = curve.total;
    return [title, ...data.runs ? [curve.label] : [], ...[last, low, high].map(x => numberText(x, 6)), `${numberText(at, 12)} ${data.groups[name].over}`, count];
  })));
  return table('Values of metrics', [['Metric'], ...data.runs ? [['Run']] : [], ['Last mean', 'number'], ['Lowest', 'number'], ['Highest', 'number'],
    ['Last at', 'number'], ['Values', 'number']], rows);
}

function drawTimes() {
  if (!data.reports) return [hint('There is no report yet.')];
  const grid = chartGrid('times');
  if (!data.ranks.length)
    return [grid, hint('The journal of this run does not say how long each rank took; the curve shows the time from report to report.')];
  const slowest = Math.max(...data.ranks.map(([mean]) => mean));
  const rows = data.ranks.map(([mean, longest, last, reports], rank) => [rank, ...[mean, longest, last].map(secondsText), reports,
    element('span', { style: `width:${slowest > 0 ? (100 * mean / slowest).toPrecision(3) : 0}%` })]);
  return [grid, table('Time per report of each rank', [['Rank'], ['Mean', 'number'], ['Longest', 'number'], ['Last', 'number'],
    ['Reports', 'number'], ['Mean, compared', 'bar']], rows)];
}

function drawCheckpoints() {
  const { rows, columns } = data.checkpoints;
  if (!rows.length) return [hint('There is none.')];
  const tags = x => [...x.best ? [element('span', { class: 'tag best' }, 'best'), ' '] : [],
    ...x.latest ? [element('span', { class: 'tag' }, 'latest')] : []];
  return [retentionHint(), table('Checkpoints', [['Name'], [''], ['Report', 'number'], ['Attempt', 'number'], ['When (UTC)'],
    ['Commit took', 'number'], ...columns.map(name => [name, 'number'])],
  rows.map(x => [x.name, tags(x), x.x, x.attempt, timeElement(x.t), x.took === undefined ? '' : secondsText(x.took), ...x.values ?? []]))];
}

function retentionHint() {
  const { committed, left, keep, by, order, rows } = data.checkpoints;
  if (left === undefined) return hint(`${committed} committed; which of them are left is not known.`);
  return hint(keep ? `The best ${keep} and the latest are kept` : 'All are kept',
    ...by ? [', ranked by ', element('bdi', {}, by), order === 'max' ? ': higher is better.' : ': lower is better.'] : ['; the newest is the best.'],
    ` ${committed} committed, ${left} left${rows.length < left ? `, the best ${rows.length} shown.` : '.'}`);
}

function drawHistory() {
  const { attempts, events } = data;
  const result = [];
  if (!attempts.count) result.push(hint('No attempt has begun yet.'));
  else result.push(element('h3', {}, 'Attempts'), table('Attempts', [['Attempt'], ['Began (UTC)'], ['First report', 'number'],
    ['Reports', 'number'], ['Resumed from'], ['Ended by', 'long']],
  attempts.last.map(x => [x.n, timeElement(x.t), x.x, x.reports, x.resume, x.failure])));
  if (events.count) result.push(element('details', {},
    element('summary', {}, `Events (${events.last.length < events.count ? `the last ${events.last.length} of ` : ''}${events.count})`),
    table('Events', [['Event'], ['When (UTC)'], ['Attempt', 'number'], ['What', 'long']],
      events.last.map(x => [x.kind, timeElement(x.t), x.attempt, x.what]))));
  return result;
}

const drawConfig = () => [data.config.length ? pairs('Config', data.config) : hint('The train loop has none.')];
const drawEnvironment = () => [data.environment.length ? pairs('Environment', data.environment) : hint('It is not known.')];

function drawLogs() {
  if (!data.logs.length) return [hint('No rank has printed anything.')];
  return data.logs.map(({ file, text, whole }, i) => element('details', i === 0 || data.logs.length <= 2 ? { open: '' } : {},
    element('summary', {}, file, ...whole ? [] : [' ', element('span', { class: 'hint' }, 'its end')]),
    element('pre', { tabindex: 0, 'aria-label': file }, text || '(empty)')));
}

const runSections = [
  ['metrics', 'Metrics', 'Metrics', drawMetrics],
  ['times', 'Times', 'Time per report', drawTimes],
  ['checkpoints', 'Checkpoints', 'Checkpoints', drawCheckpoints],
  ['history', 'History', 'What happened', drawHistory],
  ['config', 'Config', 'Config', drawConfig],
  ['environment', 'Environment', 'Environment', drawEnvironment],
  ['logs', 'Logs', 'Last log lines', drawLogs],
];

/// A section; if it cannot be drawn, the others still are.
function section([id, , title, draw]) {
  let content;
  try { content = draw(); } catch (error) { content = [failure(title, error)]; }
  return element('section', { id, 'aria-labelledby': `${id}-title` }, element('h2', { id: `${id}-title` }, title), ...content);
}
