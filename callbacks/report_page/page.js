'use strict';

// Draws a run, or several side by side, from the JSON in #data; page_data.hpp and comparison.hpp tell what is in it. A page
// of `troupe serve` gets it from there, again and again.
// Everything that came from outside gets into the document as text, never as markup.

let data;
const view = { over: 'report', scale: 'linear', filter: '' };
const charts = [];

// -- small things

function element(name, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'circle', 'text', 'title'].includes(name);
  const result = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) result.setAttribute(key, value);
  result.append(...children);
  return result;
}

const hint = (...children) => element('p', { class: 'hint' }, ...children);
const notice = (kind, title, ...children) => element('div', { class: `notice ${kind}`, role: 'note' }, element('strong', {}, title), ...children);

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

// -- scales: from values to pixels, with round ticks

function roundStep(span, count, steps = [1, 2, 5, 10]) {
  const raw = span / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * steps.find(x => x * power >= raw * 0.999);
}

function timeStep(span, count) {
  const raw = span / Math.max(count, 1);
  const known = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400];
  return raw <= 30 ? roundStep(span, count, [1, 2, 3, 5, 10]) : known.find(x => x >= raw) ?? 86400 * Math.ceil(raw / 86400);
}

function linearTicks(low, high, step) {
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high, count) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 1) {
    const within = linearTicks(low, high, roundStep(high - low, count)).filter(x => x > 0);
    return within.length ? within : [low, high];
  }
  const stride = Math.ceil((last - first + 1) / count);
  const ticks = [];
  for (let i = first; i <= last; i += stride) ticks.push(Number(`1e${i}`));
  return ticks;
}

function makeScale(low, high, from, to, log = false) {
  const map = log ? Math.log10 : x => x;
  const [a, b] = [map(low), map(high)];
  return value => from + (map(value) - a) / (b - a || 1) * (to - from);
}

// -- one chart

/// Color and dashes of curve number *i*: of more than eight, those of one color differ in their dashes.
function lookOf(i) {
  return { color: `var(--curve-${i % 8})`, dashes: ['', '7 4', '2 4', '9 3 2 3'][Math.floor(i / 8) % 4] };
}

class Chart {
  constructor(spec, over) {
    this.title = spec.title;
    this.unit = spec.unit;
    this.over = over;
    this.cursor = null; // an x that the pointer or a key has chosen, here or in another chart
    this.curves = spec.curves.map((curve, i) => ({ ...curve, axis: data.axes[curve.axis], ...lookOf(curve.run ?? i) }));
    this.build();
  }

  build() {
    const expand = element('button', { type: 'button', 'aria-label': `Enlarge ${this.title}`, 'aria-pressed': 'false', title: 'Enlarge' },
      element('svg', { width: 14, height: 14, viewBox: '0 0 14 14', 'aria-hidden': 'true' },
        element('path', { d: 'M8.5 1.5h4v4M5.5 12.5h-4v-4M12 2 8.4 5.6M2 12l3.6-3.6', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.4 })));
    expand.addEventListener('click', () => {
      expand.setAttribute('aria-pressed', this.figure.classList.toggle('wide'));
      this.measure();
      this.draw();
    });
    this.value = element('span', { class: 'value' });
    this.plot = element('svg', { class: 'plot', role: 'img', tabindex: 0 });
    this.readout = element('p', { class: 'readout' });
    this.figure = element('figure', { class: 'chart', 'data-name': this.title },
      element('figcaption', {}, element('span', { class: 'name' }, this.title), this.value, expand), this.plot);
    if (this.curves.length > 1) this.figure.append(this.makeSeries());
    this.figure.append(this.readout);
    this.plot.addEventListener('pointermove', event => this.point(event));
    this.plot.addEventListener('pointerdown', event => this.point(event));
    this.plot.addEventListener('pointerleave', () => setCursor(null, this.axisName()));
    this.plot.addEventListener('blur', () => setCursor(null, this.axisName()));
    this.plot.addEventListener('keydown', event => this.key(event));
  }

  makeSeries() {
    this.seriesValues = this.curves.map(() => element('span'));
    return element('ul', { class: 'series' }, ...this.curves.map((curve, i) =>
      element('li', {}, sampleOf(curve), curve.label, this.seriesValues[i])));
  }

  /// Charts with the same name here share a cursor.
  axisName() { return view.over === 'time' ? 'time' : this.over; }
  xs(curve) { return view.over === 'time' ? curve.axis.t : curve.axis.x; }
  format(x) { return numberText(x) + (this.unit && x !== null ? ` ${this.unit}` : ''); }
  formatX(x) { return view.over === 'time' ? timeText(x) : String(Number(x.toPrecision(12))); }

  /// Where something that happened at report *x*, *t* seconds after the begin, lies on the x axis.
  place(mark) {
    if (view.over === 'time') return mark.t;
    if (this.over === 'report') return mark.x;
    const { x, t } = this.curves[0].axis;
    const next = t.findIndex(time => time >= mark.t);
    if (next < 0) return x[x.length - 1];
    if (next === 0) return x[0];
    return x[next - 1] + (x[next] - x[next - 1]) * (mark.t - t[next - 1]) / (t[next] - t[next - 1] || 1);
  }

  /// The ranges of the axes, with some room; y counts in *unit*.
  bounds() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    let positive = Infinity;
    for (const curve of this.curves) {
      for (const x of this.xs(curve)) { x0 = Math.min(x0, x); x1 = Math.max(x1, x); }
      for (const list of [curve.mean, curve.min ?? [], curve.max ?? []])
        for (const y of list)
          if (y !== null) {
            y0 = Math.min(y0, y);
            y1 = Math.max(y1, y);
            if (y > 0) positive = Math.min(positive, y);
          }
    }
    if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
    const log = view.scale === 'log' && positive < Infinity;
    if (y0 > y1) [y0, y1] = [0, 1];
    if (y1 - y0 < 2e-5 * Math.max(Math.abs(y0), Math.abs(y1))) y0 = y1 = y0 / 2 + y1 / 2; // the data has six digits
    if (log) {
      if (y0 <= 0) y0 = positive;
      const room = Math.max(10 ** (0.05 * (Math.log10(y1) - Math.log10(y0))), 1.02);
      return { x0, x1, y0: Math.max(y0 / room, Number.MIN_VALUE), y1: Math.min(y1 * room, Number.MAX_VALUE), unit: 1, log };
    }
    // What lies between the largest numbers is larger than any number.
    const unit = Math.max(Math.abs(y0), Math.abs(y1)) > 1e300 ? 1e10 : 1;
    [y0, y1] = [y0 / unit, y1 / unit];
    const room = y1 > y0 ? 0.06 * (y1 - y0) : Math.abs(y1) * 0.1 || 1;
    return { x0, x1, y0: y0 >= 0 && y0 - room < 0 ? 0 : y0 - room, y1: y1 + room, unit, log };
  }

  measure() { this.width = Math.max(this.plot.clientWidth || this.figure.clientWidth - 30, 200); }

  draw() {
    const { width } = this;
    const height = this.figure.classList.contains('wide') ? 340 : 200;
    const b = this.bounds();
    const yStep = roundStep(b.y1 - b.y0, 6);
    const yTicks = b.log ? logTicks(b.y0, b.y1, 6) : linearTicks(b.y0, b.y1, yStep).map(y => y * b.unit).filter(Number.isFinite);
    const labels = yTicks.map(y => tickText(y, b.log ? 0 : yStep * b.unit));
    const left = Math.max(46, 14 + 6.4 * Math.max(...labels.map(x => x.length), 2)); // so that most plots are in line
    const area = { left, right: width - 8, top: 14, bottom: height - 24 };
    this.x = makeScale(b.x0, b.x1, area.left, area.right);
    const y = makeScale(b.y0, b.y1, area.bottom, area.top, b.log);
    this.y = value => y(value / b.unit);
    this.log = b.log;
    this.lowest = b.y0; // the value at the bottom
    this.area = area;
    this.plot.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.plot.setAttribute('height', height);
    this.plot.setAttribute('aria-label', this.summary());
    this.plot.replaceChildren(this.yAxis(yTicks, labels), this.xAxis(b), ...this.curves.map(x => this.line(x)), this.marks());
    this.pointer = element('g', { class: 'pointer', 'aria-hidden': 'true' });
    this.plot.append(this.pointer);
    this.show();
  }

  summary() {
    const over = view.over === 'time' ? 'time' : this.over;
    return this.curves.map(curve => `${this.curves.length > 1 ? `${this.title}, ${curve.label}` : this.title} over ${over}: ` +
      `last ${this.format(curve.mean[curve.mean.length - 1])}, ${this.extent(curve)}. `).join('') + 'Arrow keys read the points.';
  }

  extent(curve) {
    const [, , low, high] = curve.total;
    return low === null ? 'no finite value' : `lowest ${this.format(low)}, highest ${this.format(high)}`;
  }

  yAxis(ticks, labels) {
    const { left, right } = this.area;
    return element('g', { class: 'y-axis', 'aria-hidden': 'true' }, ...ticks.flatMap((tick, i) => {
      const y = px(this.y(tick));
      return [element('line', { class: 'grid', x1: px(left), x2: px(right), y1: y, y2: y }),
        element('text', { x: px(left - 6), y, dy: '.34em', 'text-anchor': 'end', 'data-value': tick }, labels[i])];
    }));
  }

  xAxis(b) {
    const { left, right, bottom } = this.area;
    const count = Math.max(2, Math.floor((right - left) / 80));
    const time = view.over === 'time';
    const step = time ? timeStep(b.x1 - b.x0, count) : Math.max(1, roundStep(b.x1 - b.x0, count));
    const ticks = linearTicks(b.x0, b.x1, step);
    return element('g', { class: 'x-axis', 'aria-hidden': 'true' },
      element('line', { class: 'base', x1: px(left), x2: px(right), y1: px(bottom), y2: px(bottom) }),
      ...ticks.map(tick => element('text', { x: px(this.x(tick)), y: px(bottom + 17), 'text-anchor': 'middle', 'data-value': tick },
        this.formatX(tick))));
  }

  /// Runs of points to be joined: broken where an attempt begins and where there is no value to draw.
  runs(curve) {
    const gaps = new Set(curve.axis.gaps);
    const runs = [];
    let run = [];
    curve.mean.forEach((y, i) => {
      if (gaps.has(i)) run = [];
      if (y === null || (this.log && y <= 0)) { run = []; return; }
      if (!run.length) runs.push(run);
      run.push(i);
    });
    return runs;
  }

  line(curve) {
    const xs = this.xs(curve);
    const runs = this.runs(curve);
    const at = (i, list) => `${px(this.x(xs[i]))},${px(this.y(list[i]))}`;
    const group = element('g', { class: 'series-line', style: `--color:${curve.color}`, 'data-label': curve.label, ...dashed(curve.dashes) });
    if (curve.min) {
      // A log scale has no place for what is not positive: the band then ends at the bottom.
      const low = curve.min.map(y => this.log && y <= 0 ? this.lowest : y);
      const band = runs.map(run => `M${run.map(i => at(i, curve.max)).join('L')}L${[...run].reverse().map(i => at(i, low)).join('L')}Z`);
      group.append(element('path', { class: 'band', d: band.join('') }));
    }
    group.append(element('path', { class: 'curve', d: runs.filter(x => x.length > 1).map(run => `M${run.map(i => at(i, curve.mean)).join('L')}`).join('') }));
    for (const run of runs)
      if (run.length === 1) group.append(element('circle', { class: 'lone', r: 2.5, cx: px(this.x(xs[run[0]])), cy: px(this.y(curve.mean[run[0]])) }));
    for (const i of curve.bad ?? []) {
      const x = this.x(xs[i]);
      group.append(element('path', { class: 'bad', d: `M${px(x - 4)},${px(this.area.top - 8)}h8l-4,7Z` },
        element('title', {}, `not finite (NaN or infinite) at ${this.axisLabel(curve, i)}`)));
    }
    return group;
  }

  marks() {
    const { left, right, top, bottom } = this.area;
    const within = x => x >= left - 1 && x <= right + 1;
    const group = element('g', { class: 'marks' });
    let free = left; // where the next label may begin
    for (const attempt of data.attempts.last.slice(1)) {
      const x = this.x(this.place({ t: attempt.t, x: attempt.x - 0.5 }));
      if (!within(x)) continue;
      group.append(element('path', { class: 'restart', d: `M${px(x)},${top - 4}V${px(bottom)}` },
        element('title', {}, `attempt ${attempt.n} began at report ${attempt.x}, ${timeText(attempt.t)}`)));
      const label = `attempt ${attempt.n}`;
      const begin = x + 4 + 5.6 * label.length > right ? x - 4 - 5.6 * label.length : x + 4;
      if (begin < free) continue;
      free = begin + 5.6 * label.length + 6;
      group.append(element('text', { class: 'attempt', x: px(begin), y: top - 1 + 6, 'aria-hidden': 'true' }, label));
    }
    for (const one of data.checkpoints.marks) {
      const x = this.x(this.place(one));
      if (!within(x)) continue;
      const size = one.best ? 4.5 : 3.5;
      group.append(element('path', { class: one.best ? 'checkpoint best' : 'checkpoint', 'data-name': one.name,
        d: `M${px(x)},${px(bottom - size)}l${size},${size}l${-size},${size}l${-size},${-size}Z` },
      element('title', {}, `${one.best ? 'best ' : ''}checkpoint ${one.name}, report ${one.x}, ${timeText(one.t)}`)));
    }
    return group;
  }

  // -- reading values

  /// All places on the x axis that have a value.
  places() {
    const axes = new Set(this.curves.map(curve => curve.axis));
    if (axes.size === 1) return this.xs(this.curves[0]);
    return [...new Set(this.curves.flatMap(curve => this.xs(curve)))].sort((a, b) => a - b);
  }

  point(event) {
    const box = this.plot.getBoundingClientRect();
    const pixel = (event.clientX - box.left) * this.plot.viewBox.baseVal.width / box.width;
    const xs = this.places();
    const nearest = this.nearest(xs, x => Math.abs(this.x(x) - pixel));
    setCursor(xs[nearest], this.axisName());
  }

  key(event) {
    const xs = this.places();
    const now = this.cursor === null ? -1 : this.nearest(xs, x => Math.abs(x - this.cursor));
    const by = event.shiftKey ? 10 : 1;
    const last = xs.length - 1;
    const next = { ArrowRight: Math.min(now + by, last), ArrowLeft: now < 0 ? last : Math.max(now - by, 0), Home: 0, End: last }[event.key];
    if (event.key === 'Escape') setCursor(null, this.axisName());
    if (next === undefined) return;
    event.preventDefault();
    setCursor(xs[next], this.axisName());
    this.show(); // now, for the announcement
    document.getElementById('announcement').textContent = `${this.title}: ${this.value.textContent}, ${this.readout.textContent}`;
  }

  nearest(xs, distance) {
    let best = 0;
    for (let i = 1; i < xs.length; ++i) if (distance(xs[i]) <= distance(xs[best])) best = i;
    return best;
  }

  axisLabel(curve, i) {
    const { x, t, of } = curve.axis;
    const count = of ? of[i] : 1;
    return `${this.over} ${Math.round(x[i])} · ${timeText(t[i])}${count > 1 ? ` · mean of ${count}` : ''}`;
  }

  /// Which point of the curve is read; none where a run had not begun or was over.
  pointOf(curve) {
    const xs = this.xs(curve);
    if (this.cursor === null) return xs.length - 1;
    if (data.runs && (this.cursor < xs[0] || this.cursor > xs[xs.length - 1])) return -1;
    return this.nearest(xs, x => Math.abs(x - this.cursor));
  }

  /// Puts values at the cursor, or the last ones, into caption and read-out.
  show() {
    this.pointer.replaceChildren();
    const at = this.curves.map(curve => this.pointOf(curve));
    const chosen = Math.max(at.findIndex(i => i >= 0), 0);
    const first = this.curves[chosen];
    const point = Math.max(at[chosen], 0);
    this.value.textContent = this.curves.length > 1 ? '' : this.format(first.mean[point]);
    this.curves.forEach((curve, i) => { if (this.seriesValues) this.seriesValues[i].textContent = at[i] < 0 ? '–' : this.format(curve.mean[at[i]]); });
    if (this.cursor === null) {
      this.readout.textContent = this.curves.length === 1 ? this.extent(first) : data.runs ? 'last value of each run' : `last at ${this.axisLabel(first, point)}`;
      return;
    }
    const range = first.min && first.min[point] !== null && this.curves.length === 1
      ? ` · ${this.format(first.min[point])} to ${this.format(first.max[point])}` : '';
    this.readout.textContent = this.axisLabel(first, point) + range;
    const x = px(this.x(this.xs(first)[point]));
    this.pointer.append(element('line', { class: 'cursor', x1: x, x2: x, y1: this.area.top, y2: px(this.area.bottom) }));
    this.curves.forEach((curve, i) => {
      const y = at[i] < 0 ? null : curve.mean[at[i]];
      if (y === null || (this.log && y <= 0)) return;
      this.pointer.append(element('circle', { class: 'dot', r: 4, style: `--color:${curve.color}`, cx: px(this.x(this.xs(curve)[at[i]])), cy: px(this.y(y)) }));
    });
  }
}

let waiting = null;

/// Shows the values at *x* in every chart with that x axis, once a frame.
function setCursor(x, axis) {
  for (const chart of charts) chart.cursor = chart.axisName() === axis ? x : null;
  waiting ??= requestAnimationFrame(() => {
    waiting = null;
    for (const chart of charts) if (!chart.figure.hidden) chart.show();
  });
}

function drawAll() {
  const shown = charts.filter(chart => !chart.figure.hidden);
  for (const chart of charts) chart.cursor = null;
  // First all widths: after a change, each look at one would lay out the page again.
  for (const chart of shown) chart.measure();
  for (const chart of shown) chart.draw();
}

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
  for (const name of ['over', 'scale']) {
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

// -- the page of a run

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

// -- the page

function runOverview() {
  const fact = (name, value) => element('div', {}, element('dt', {}, name), element('dd', {}, value));
  const result = [element('div', { class: 'title' }, element('h1', {}, data.name),
    element('span', { class: 'status', 'data-status': data.status }, data.status)),
  element('dl', { class: 'facts' }, fact('Reports', data.reports), fact('Ranks', data.world || '–'), fact('Attempts', data.attempts.count),
    fact('Checkpoints', data.checkpoints.committed),
    ...data.begin === null ? [] : [fact('Time span', timeText(data.end)), fact('Last entry (UTC)', timeElement(data.end))])];
  if (data.error) result.push(notice('error', 'The run did not finish.', element('pre', {}, data.error)));
  return result;
}

function overview(sections) {
  return [...data.runs ? comparedOverview() : runOverview(),
    ...data.complaints.length ? [notice('', data.runs ? 'Not everything of these runs could be shown.' : 'Not everything of this run could be shown.',
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
  const sections = data.runs ? comparedSections : runSections;
  document.querySelector('header').replaceChildren(...overview(sections));
  placeSections(sections);
  if (charts.length && !document.getElementById('announcement'))
    document.body.append(element('div', { id: 'announcement', 'aria-live': 'polite', style: 'position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)' }));
  buildToolbar();
  if (view.filter) showOnly(view.filter);
  else drawAll();
}

// -- the pages of `troupe serve`: all runs of a folder, or one of them, as they change

const live = { source: null, token: '', run: '', stop: null };

const linkTo = run => `#${new URLSearchParams({ token: live.token, ...run ? { run } : {} })}`;

/// Shows what the address asks for; anything else that was shown goes.
function startLive() {
  const place = new URLSearchParams(location.hash.slice(1));
  live.token = place.get('token') ?? '';
  live.run = place.get('run') ?? '';
  live.stop = live.run ? stopButtons(live.run) : null;
  live.source?.close();
  charts.length = 0;
  view.filter = '';
  document.title = live.run || 'Runs';
  applyTheme(remembered('theme', 'auto', options.theme));
  const toolbar = document.getElementById('toolbar');
  toolbar.replaceChildren();
  toolbar.hidden = true;
  document.querySelector('header').replaceChildren(element('h1', {}, document.title));
  document.querySelector('main').replaceChildren(hint('Waiting for the server.'));
  live.source = new EventSource(`/events?${new URLSearchParams({ token: live.token, run: live.run })}`);
  const on = (kind, draw) => live.source.addEventListener(kind, event => {
    try { draw(JSON.parse(event.data)); } catch (error) { document.querySelector('main').replaceChildren(failure('This page', error)); }
  });
  on('runs', drawList);
  on('run', drawLiveRun);
  on('problem', ({ message }) => sayState(message));
  live.source.addEventListener('open', () => sayState(''));
  live.source.addEventListener('error', () => sayState(live.source.readyState === EventSource.CLOSED
    ? 'The server does not let this page in. Open the address that it printed; it serves 16 pages at once.'
    : 'The server cannot be reached. The page shows what was last known.'));
}

/// A line above the page, if there is something to say.
function sayState(text) {
  document.getElementById('state')?.remove();
  if (text) document.body.prepend(element('div', { id: 'state', role: 'status' }, text));
}

function drawLiveRun({ name, state, can_stop: canStop, run }) {
  const [left, top, focus] = [scrollX, scrollY, document.activeElement];
  const chart = focus?.closest?.('.chart')?.dataset.name;
  const cursors = new Map(charts.map(x => [x.axisName(), x.cursor]));
  sayState('');
  drawPage({ ...run, name, status: state });
  document.querySelector('header').prepend(element('nav', { 'aria-label': 'Pages' }, element('a', { href: linkTo() }, 'All runs')));
  if (canStop) document.querySelector('.title').append(live.stop);
  for (const x of charts) x.cursor = cursors.get(x.axisName()) ?? null;
  for (const x of charts) if (x.cursor !== null && !x.figure.hidden) x.show();
  if (live.stop.contains(focus)) focus.focus();
  else if (chart) charts.find(x => x.title === chart)?.plot.focus({ preventScroll: true });
  scrollTo(left, top);
}

/// Buttons that ask once more before they end the run.
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
      try {
        const answer = await fetch(`/stop?${new URLSearchParams({ run, preempt })}`, { method: 'POST', headers: { Authorization: `Bearer ${live.token}` } });
        said.textContent = (await answer.text()).trim();
      } catch { said.textContent = 'The server cannot be reached.'; }
    });
    return result;
  };
  return element('span', { class: 'stop' }, button('Stop', 0), button('Stop after a checkpoint', 1), said);
}

function drawList({ storage, runs, complaints }) {
  data = { begin: 0 }; // of the times
  const started = x => x.started ? timeElement(Date.parse(x.started) / 1000) : '';
  const score = x => x.score === null ? '' : `${x.score_name} ${typeof x.score === 'number' ? numberText(x.score) : x.score}`;
  const rows = [...runs].sort((a, b) => (b.started ?? '').localeCompare(a.started ?? '')).map(x => [element('a', { href: linkTo(x.name) }, x.name),
    element('span', { class: 'status', 'data-status': x.state }, x.state), x.reports, x.restarts, x.checkpoints, started(x),
    x.seconds === null ? '' : timeText(x.seconds), score(x), [x.error, ...x.problems.map(y => y.message)].filter(y => y).join('; ')]);
  const focus = document.activeElement?.getAttribute('href');
  document.querySelector('header').replaceChildren(element('div', { class: 'title' }, element('h1', {}, 'Runs'), element('span', { class: 'hint' }, storage)),
    ...complaints.length ? [notice('', 'Not everything in this folder could be shown.', element('ul', {}, ...complaints.map(x => element('li', {}, x))))] : []);
  document.querySelector('main').replaceChildren(rows.length ? table('Runs', [['Run'], ['Status'], ['Reports', 'number'], ['Restarts', 'number'],
    ['Checkpoints', 'number'], ['Began (UTC)'], ['Time span', 'number'], ['Last score', 'number'], ['Error', 'long']], rows) : hint('There are no runs yet.'));
  sayState('');
  if (focus) [...document.querySelectorAll('main a')].find(x => x.getAttribute('href') === focus)?.focus({ preventScroll: true });
}

function start() {
  const first = JSON.parse(document.getElementById('data').textContent);
  if (!first.live) return drawPage(first);
  addEventListener('hashchange', startLive);
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
