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
    const least = 1e-9 * Math.max(Math.abs(x0), Math.abs(x1)); // steps may be times in ns, which doubles do not tell apart
    if (x0 <= x1 && x1 - x0 <= least) {
      const half = Math.max(0.5, least);
      [x0, x1] = [x0 - half, x1 + half];
    }
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
