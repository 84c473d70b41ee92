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
