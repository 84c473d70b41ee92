// -- the page

function runOverview() {
  const result = [element('div', { class: 'title' }, element('h1', {}, data.name),
    element('span', { class: 'status', 'data-status': data.status }, data.status)),
  element('dl', { class: 'facts' }, fact('Reports', data.reports), fact('Ranks', data.world || '–'), fact('Attempts', data.attempts.count),
    fact('Checkpoints', data.checkpoints.committed),
    ...data.begin === null ? [] : [fact('Time span', timeText(data.end)), fact('Last entry (UTC)', timeElement(data.end))])];
  if (data.error) result.push(notice('error', 'The run did not finish.', element('pre', {}, data.error)));
  return result;
}

function overview(sections) {
  const what = data.sweep ? 'this sweep' : data.runs ? 'these runs' : 'this run';
  return [...data.sweep ? sweepOverview() : data.runs ? comparedOverview() : runOverview(),
    ...data.complaints.length ? [notice('', `Not everything of ${what} could be shown.`,
      element('ul', {}, ...data.complaints.map(x => element('li', {}, x))))] : [],
    element('nav', { 'aria-label': 'Sections' }, ...sections.map(([id, link]) => element('a', { href: `#${id}` }, link)))];
}

/// Takes over what the reader has done to *old*, which *fresh* replaces.
function keepState(old, fresh) {
  const boxes = [...old.querySelectorAll('details')];
  [...fresh.querySelectorAll('details')].forEach((box, i) => { if (boxes[i]) box.open = boxes[i].open; });
  const names = new Set([...old.querySelectorAll('.chart.wide')].map(x => x.dataset.name));
  for (const figure of fresh.querySelectorAll('.chart'))
    if (names.has(figure.dataset.name)) {
      figure.classList.add('wide');
      figure.querySelector('button').setAttribute('aria-pressed', 'true');
    }
}

/// Puts *sections* into the page; those that look the same as before stay.
function placeSections(sections) {
  const main = document.querySelector('main');
  const fresh = sections.map(section);
  const metrics = fresh.find(x => x.id === 'metrics');
  if (charts.length && metrics) metrics.querySelector('h2').after(buildKey());
  const old = [...main.children];
  if (old.length !== fresh.length || old.some((x, i) => x.id !== fresh[i].id)) {
    main.replaceChildren(...fresh);
    return;
  }
  fresh.forEach((x, i) => {
    keepState(old[i], x);
    if (!old[i].isEqualNode(x)) old[i].replaceWith(x);
  });
}

function drawPage(next) {
  data = next;
  charts.length = 0;
  if (data.runs) { // which have no marks of one run, and times since the first began
    data.attempts = { last: [] };
    data.checkpoints = { marks: [] };
    data.begin = Math.min(...data.runs.map(x => x.begin ?? Infinity));
  }
  const sections = data.sweep ? sweepSections : data.runs ? comparedSections : runSections;
  document.querySelector('header').replaceChildren(...overview(sections));
  placeSections(sections);
  if (data.sweep) showChosen();
  if (charts.length && !document.getElementById('announcement'))
    document.body.append(element('div', { id: 'announcement', 'aria-live': 'polite', style: 'position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)' }));
  buildToolbar();
  if (view.filter) showOnly(view.filter);
  else drawAll();
}

function start() {
  const first = JSON.parse(document.getElementById('data').textContent);
  if (!first.live) return drawPage(first);
  addEventListener('hashchange', startLive);
  document.addEventListener('visibilitychange', listen);
  // The part of the address after # says what is shown, not where the page is scrolled to.
  addEventListener('click', event => {
    const link = event.target.closest?.('nav[aria-label="Sections"] a');
    if (!link) return;
    event.preventDefault();
    document.querySelector(link.getAttribute('href')).scrollIntoView();
  });
  startLive();
}

try { start(); } catch (error) {
  document.querySelector('.undrawn')?.remove(); // which says that no script ran
  document.querySelector('main').prepend(failure('This page', error));
}

let known = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== known) drawAll();
  known = innerWidth;
});
