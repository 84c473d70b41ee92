'use strict';

// Draws a run, a sweep, or several runs side by side, from the JSON in #data; page_data.hpp, sweep_page.hpp and
// comparison.hpp say what is in it. A page of `troupe serve` gets the same from the server, again and again, or the list of
// all runs.
// Everything that came from outside gets into the document as text, never as markup.

let data;
const view = { over: 'report', scale: 'linear', filter: '' };
const charts = [];

// -- elements and texts

function element(name, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'circle', 'text', 'title'].includes(name);
  const result = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) result.setAttribute(key, value);
  result.append(...children);
  return result;
}

const hint = (...children) => element('p', { class: 'hint' }, ...children);
const notice = (kind, title, ...children) => element('div', { class: `notice ${kind}`, role: 'note' }, element('strong', {}, title), ...children);

/// One of those at the top of the page.
const fact = (name, value) => element('div', {}, element('dt', {}, name), element('dd', {}, value));

/// Says that *what* could not be drawn; also to the browser's console.
function failure(what, error) {
  console.error(error);
  return notice('error', `${what} could not be drawn.`, element('pre', {}, String(error)));
}

const px = x => x.toFixed(1).replace('-0.0', '0.0');

function numberText(x, digits = 5) {
  if (x === null || x === undefined) return 'not finite';
  if (x === 0) return '0';
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-4) return x.toExponential(digits - 1).replace(/\.?0+e/, 'e').replace('e+', 'e');
  return String(Number(x.toPrecision(Math.max(digits, Math.ceil(Math.log10(size))))));
}

/// A tick's label: as many decimals as it takes to tell ticks *step* apart.
function tickText(x, step) {
  const size = Math.abs(x);
  if (x === 0) return '0';
  if (!step || size >= 1e6 || (size > 0 && step < 1e-5)) return numberText(x, step ? Math.max(2, Math.ceil(Math.log10((size || 1) / step)) + 1) : 5);
  return x.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
}

function timeText(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(seconds < 10 ? 2 : 1))} s`;
  const whole = Math.round(seconds);
  const two = x => String(x).padStart(2, '0');
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  const clock = whole < 3600 ? `${minutes}:${two(whole % 60)}` : `${hours}:${two(minutes)}:${two(whole % 60)}`;
  return days ? `${days} d ${clock}` : clock;
}

/// A short span: "350 µs", "1.2 s".
function secondsText(x) {
  if (x === null) return numberText(x);
  return x < 1e-3 ? `${numberText(x * 1e6, 3)} µs` : x < 1 ? `${numberText(x * 1e3, 3)} ms` : `${numberText(x, 3)} s`;
}

/// The time *t* seconds after the begin; nothing if it is not known.
function timeElement(t) {
  const date = new Date(data.begin + Math.round(1000 * t));
  if (isNaN(date)) return '';
  const text = date.toISOString().replace(/\.\d+/, '');
  return element('time', { datetime: text }, text.replace('T', ' ').replace('Z', ''));
}

/// A table that scrolls within its box. A column is [title, class of its cells], a cell one child or a list of them; the
/// first cell of a row is its head.
function table(label, columns, rows) {
  const body = rows.map(([head, ...cells]) => element('tr', {}, element('th', { scope: 'row' }, head),
    ...cells.map((cell, i) => element('td', columns[i + 1][1] ? { class: columns[i + 1][1] } : {}, ...[cell].flat()))));
  return tableBox(label, {}, element('thead', {}, element('tr', {}, ...columns.map(([title]) => element('th', { scope: 'col' }, title)))),
    element('tbody', {}, ...body));
}

function tableBox(label, attributes, ...children) {
  return element('div', { class: 'table', role: 'region', tabindex: 0, 'aria-label': label }, element('table', attributes, ...children));
}

/// A table of names and texts.
function pairs(label, all) {
  return tableBox(label, { class: 'pairs' }, element('tbody', {},
    ...all.map(([name, text]) => element('tr', {}, element('th', { scope: 'row' }, name), element('td', {}, text)))));
}

const dashed = dashes => dashes ? { 'stroke-dasharray': dashes } : {};

/// A piece of the line of a curve.
function sampleOf({ color, dashes }) {
  return element('svg', { class: 'line', width: 20, height: 8, viewBox: '0 0 20 8', style: `--color:${color}`, 'aria-hidden': 'true' },
    element('path', { class: 'sample', d: 'M1,4H19', ...dashed(dashes) }));
}
