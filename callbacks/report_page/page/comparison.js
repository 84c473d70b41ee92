// -- several runs side by side

function drawRuns() {
  const best = ({ best }) => best ? [`${best[0]} ${numberText(best[2])} `, element('span', { class: 'hint' }, best[1] === 'max' ? 'highest' : 'lowest')] : '';
  const begin = x => x.begin === undefined ? '' : timeElement((x.begin - data.begin) / 1000);
  return [table('Runs', [['Run'], ['Status'], ['Reports', 'number'], ['Ranks', 'number'], ['Attempts', 'number'], ['Checkpoints', 'number'],
    ['Began (UTC)'], ['Time span', 'number'], ['Best', 'number'], ['Error', 'long'], ['Folder', 'long']],
  data.runs.map((x, i) => [element('span', { class: 'run' }, sampleOf(lookOf(i)), x.name), element('span', { class: 'status', 'data-status': x.status }, x.status),
    x.reports, x.world || '–', x.attempts, x.checkpoints, begin(x), x.seconds === undefined ? '' : timeText(x.seconds), best(x), x.error, x.path]))];
}

/// A table with a column for each run; rows in which they differ are marked and come first.
function differences(label, all, empty) {
  if (!all.length) return [hint(empty)];
  const sorted = [...all].sort((a, b) => b[2] - a[2]);
  const head = element('tr', {}, element('th', { scope: 'col' }, 'Name'), ...data.runs.map(({ name }) => element('th', { scope: 'col' }, name)));
  const rows = sorted.map(([name, values, differs]) => element('tr', differs ? { class: 'differs' } : {}, element('th', { scope: 'row' }, name),
    ...values.map(value => element('td', { class: 'long' }, value ?? '–'))));
  const count = all.filter(([, , differs]) => differs).length;
  return [hint(count ? `They differ in ${count} of ${all.length}.` : 'They do not differ.'),
    tableBox(label, {}, element('thead', {}, head), element('tbody', {}, ...rows))];
}

const comparedSections = [
  ['metrics', 'Metrics', 'Metrics', drawMetrics],
  ['runs', 'Runs', 'Runs', drawRuns],
  ['config', 'Config', 'Config', () => differences('Config', data.config, 'The train loops have none.')],
  ['environment', 'Environment', 'Environment', () => differences('Environment', data.environment, 'It is not known.')],
];

function comparedOverview() {
  return [element('div', { class: 'title' }, element('h1', {}, data.name), element('span', { class: 'status' }, `${data.runs.length} runs, compared`))];
}
