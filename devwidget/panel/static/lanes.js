// A trace on lanes, as numbers: where places stand on a line from 0 to 1, in which row each box lies, what falls together.
// `drawn` is what `report/figures/timeline.py` says.

const FINE = 2; // pixels, of boxes too narrow to tell apart
const EMPTY_SHARE = 0.08; // of the width, for a phase in which nothing is drawn
const LEVELS = [[3, 6], [5, 4], [Infinity, 3]]; // up to so many lanes: so many rows of boxes in each

// The line: phases in which nothing is drawn are short, all else is as long as it was.
function warp(bands, last) {
  const parts = [];
  let at = 0;
  for (const [, start, stop, empty] of bands) {
    if (start > at) parts.push({ from: at, to: start, empty: false });
    parts.push({ from: Math.max(start, at), to: stop, empty: Boolean(empty) });
    at = stop;
  }
  if (last > at) parts.push({ from: at, to: last, empty: false });
  const length = (kind) => parts.reduce((sum, { from, to, empty }) => sum + (empty === kind ? to - from : 0), 0);
  const full = length(false);
  const narrow = ({ from, to, empty }) => empty && full > 0 && (to - from) / last > EMPTY_SHARE;
  const lost = parts.reduce((sum, part) => sum + (narrow(part) ? part.to - part.from : 0), 0);
  const rest = 1 - EMPTY_SHARE * parts.filter(narrow).length;
  let start = 0;
  for (const part of parts) {
    part.start = start;
    part.stop = start += narrow(part) ? EMPTY_SHARE : (rest * (part.to - part.from)) / (last - lost || 1);
    part.isNarrow = narrow(part);
  }
  const between = (parts, value, [low, high], [first, second]) => {
    const part = parts.find((each) => value <= each[high]) ?? parts[parts.length - 1];
    const share = part && part[high] > part[low] ? (value - part[low]) / (part[high] - part[low]) : 0;
    return part ? part[first] + Math.min(1, Math.max(0, share)) * (part[second] - part[first]) : value;
  };
  return {
    parts,
    at: (place) => between(parts, place, ["from", "to"], ["start", "stop"]),
    placeOf: (at) => between(parts, at, ["start", "stop"], ["from", "to"]),
  };
}

// All that is drawn on one axis, `time` or order: boxes by row, hops, faults and refusals at their places on the line.
export function placed(drawn, variant) {
  const moved = drawn.time && variant === "time" ? drawn.time : drawn;
  const bands = drawn.bands.map(([name, empty], n) => [name, ...moved.spans[n], empty]);
  const last = Math.max(...moved.stop, ...moved.arrowsAt, ...moved.crossesAt, ...moved.refusalsAt, ...bands.map((band) => band[2]), 1e-9);
  const line = warp(bands, last);
  const [, most] = LEVELS.find(([lanes]) => drawn.lanes.length <= lanes) ?? LEVELS[0];
  const gradients = new Set(drawn.gradients);
  const rows = new Map(); // lane, level, and whether they are of backward -> boxes from left to right
  const levels = new Map(); // of the first box of a module in a lane
  drawn.lane.forEach((lane, box) => {
    const level = drawn.level[box];
    if (level >= most) return;
    const gradient = gradients.has(box);
    const key = `${lane} ${level} ${gradient}`;
    const own = `${lane} ${drawn.module[box]}`;
    if (!levels.has(own)) levels.set(own, level);
    if (!rows.has(key)) rows.set(key, { lane, level, gradient, boxes: [] });
    rows.get(key).boxes.push({ box, start: line.at(moved.start[box]), stop: line.at(moved.stop[box]) });
  });
  const levelsOf = (lane) => [...rows.values()].filter((row) => row.lane === lane).map((row) => row.level);
  const heights = [-1, ...drawn.lanes.keys()].map((lane) => [lane, 1 + Math.max(-1, ...levelsOf(lane))]);
  const shown = heights.filter(([lane, rows]) => lane >= 0 || rows);
  const hidden = drawn.level.filter((level) => level >= most).length;
  return { line, bands, last, rows: [...rows.values()], levels, heights: shown, marks: marksOf(drawn, moved, line), hidden };
}

// Hops, faults and refusals from left to right.
function marksOf(drawn, moved, line) {
  const placedAt = (name, n) => ({ at: line.at(moved[name][n]), place: drawn[name][n] });
  const hops = drawn.arrows.map(([source, lane, module, hop, count, bytes, weight, fault, healed], n) => {
    return { kind: "hop", source, lane, module, hop, count, bytes, weight, fault, healed, ...placedAt("arrowsAt", n) };
  });
  const faults = drawn.crosses.map(([lane, module, words, finding, joined], n) => {
    return { kind: "fault", lane, module, words, finding, joined, ...placedAt("crossesAt", n) };
  });
  const refusals = drawn.refusals.map(([lane, module, words], n) => ({ kind: "refused", lane, module, words, ...placedAt("refusalsAt", n) }));
  return [...hops, ...faults, ...refusals].sort((one, other) => one.at - other.at);
}

// The first box of a row that ends behind a place.
export function firstAfter(row, at) {
  let [low, high] = [0, row.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle].stop < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The boxes of a row between two places as one path, and those with room for a name; what falls on one pixel is drawn once,
// and narrow ones that touch are drawn as one: a thousand rectangles take far longer to paint than to find.
/** @param {number[]} seen @param {number[]} area */
export function boxShapes(row, xOf, seen, area, y, height) {
  const [[first, last], [left, right]] = [seen, area];
  const drawn = []; // from left to right, where each begins and ends
  let count = 0;
  let free = -Infinity;
  const names = [];
  for (let n = firstAfter(row, first); n < row.length && row[n].start <= last; n++) {
    const from = Math.max(left, xOf(row[n].start), free);
    const to = Math.min(right, Math.max(xOf(row[n].stop), xOf(row[n].start) + 1));
    if (to - free < 0.75) continue;
    const before = drawn[drawn.length - 1];
    if (to - from < FINE && from - free < 0.5) before[1] = to;
    else drawn.push([from, to]);
    free = to;
    count += 1;
    if (to - from > 18) names.push({ box: row[n].box, x: from, width: to - from });
  }
  const path = drawn.map(([from, to]) => `M${from.toFixed(1)} ${y}H${to.toFixed(1)}V${y + height}H${from.toFixed(1)}Z`).join("");
  return { path, names, isFine: count > (right - left) / 6 };
}

// Marks nearer than `near` that look the same are one, at the first of them.
/** @param {number[]} seen */
export function gathered(marks, xOf, near, seen) {
  const [first, last] = seen;
  const open = new Map();
  const groups = [];
  for (const mark of marks) {
    if (mark.at < first || mark.at > last || mark.joined) continue;
    const key = `${mark.kind} ${mark.source} ${mark.lane} ${mark.healed}`;
    const x = xOf(mark.at);
    const group = open.get(key);
    if (group) group.room = x - group.x;
    if (group && x - group.x < near) {
      group.marks.push(mark);
      continue;
    }
    const started = { x, marks: [mark], room: Infinity };
    open.set(key, started);
    groups.push(started);
  }
  return groups;
}

// Arrows that would lie upon one another, and look like a chain, stand side by side, the last one at its place.
export function spreadArrows(groups, widthOf, most) {
  let free = Infinity;
  for (const group of groups.filter(({ marks }) => marks[0].kind === "hop").reverse()) {
    const half = widthOf(group.marks) / 2;
    group.x = Math.max(Math.min(group.x, free - half), group.x - most);
    free = group.x - half;
  }
  return groups;
}

// Round steps of an axis with about so many of them.
export function roundStep(rough) {
  const size = 10 ** Math.floor(Math.log10(rough));
  return size * ([1, 2, 5].find((step) => step * size >= rough) ?? 10);
}
