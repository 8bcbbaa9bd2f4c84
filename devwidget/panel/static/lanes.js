// A trace on lanes, as numbers: where places stand on a line from 0 to 1, in which row each box lies, what falls together.
// `drawn` is what `report/figures/timeline.py` says.

const EMPTY_SHARE = 0.12; // of all else, for a phase in which nothing is drawn
const FINE = 6; // pixels, of boxes too narrow to tell apart
const LEVELS = [[3, 6], [5, 4], [Infinity, 3]]; // up to so many lanes: so many rows of boxes in each

export const ascending = (one, other) => one - other;

// The line: a phase in which nothing is drawn is short, all else is as long as it was.
function scaleOf(bands, last) {
  const edges = [...new Set([0, last, ...bands.flatMap(([, start, stop]) => [start, stop])])].sort(ascending);
  const isEmpty = (from) => bands.some(([, start, stop, empty]) => empty && from >= start && from < stop);
  const parts = edges.slice(1).map((to, n) => ({ length: to - edges[n], empty: isEmpty(edges[n]) }));
  const full = parts.reduce((sum, { length, empty }) => sum + (empty ? 0 : length), 0);
  const knots = [0];
  for (const { length, empty } of parts) knots.push(knots[knots.length - 1] + (empty && full ? Math.min(length, EMPTY_SHARE * full) : length));
  const whole = knots[knots.length - 1];
  return { at: (place) => between(place, edges, knots) / whole, placeOf: (at) => between(at * whole, knots, edges) };
}

// From one scale to another, in which the same edges are.
function between(value, from, to) {
  const found = from.findIndex((edge, n) => n && value <= edge);
  const n = found < 0 ? from.length - 1 : found;
  const share = (value - from[n - 1]) / (from[n] - from[n - 1]);
  return to[n - 1] + Math.min(1, Math.max(0, share)) * (to[n] - to[n - 1]);
}

// All that is drawn on one axis, `time` or order: boxes by row, hops, faults and refusals at their places on the line.
export function placed(drawn, variant) {
  const moved = drawn.time && variant === "time" ? drawn.time : drawn;
  const bands = drawn.bands.map(([name, empty], n) => [name, ...moved.spans[n], empty]);
  const last = Math.max(...moved.stop, ...moved.arrowsAt, ...moved.crossesAt, ...moved.refusalsAt, ...bands.map((band) => band[2]), 1e-9);
  const line = scaleOf(bands, last);
  const [, most] = LEVELS.find(([lanes]) => drawn.lanes.length <= lanes) ?? LEVELS[0];
  const gradients = new Set(drawn.gradients);
  const rows = new Map(); // lane, level, and whether they are of backward -> boxes from left to right
  const levels = new Map(); // of the first box of a module in a lane
  const counts = new Map([...drawn.lanes.keys()].map((lane) => [lane, 1])); // of the rows of each lane
  drawn.lane.forEach((lane, box) => {
    const level = drawn.level[box];
    if (level >= most) return;
    const gradient = gradients.has(box);
    const key = `${lane} ${level} ${gradient}`;
    const own = `${lane} ${drawn.module[box]}`;
    if (!levels.has(own)) levels.set(own, level);
    if (!rows.has(key)) rows.set(key, { lane, level, gradient, boxes: [] });
    rows.get(key).boxes.push({ box, start: line.at(moved.start[box]), stop: line.at(moved.stop[box]) });
    counts.set(lane, Math.max(counts.get(lane) ?? 1, level + 1));
  });
  const heights = [...counts].sort(([one], [other]) => one - other);
  const hidden = drawn.level.filter((level) => level >= most).length;
  return { line, bands, last, rows: [...rows.values()], levels, heights, marks: marksOf(drawn, moved, line), hidden };
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
  return [...hops, ...faults, ...refusals].filter((mark) => !mark.joined).sort((one, other) => one.at - other.at);
}

// The boxes of a row that are seen, each from `x` to `end`; narrow ones that touch are one, for a thousand take long to paint.
export function shapesOf(boxes, xOf, [first, last]) {
  /** @type {any[]} */
  const shapes = [];
  const [left, right] = [xOf(first), xOf(last)];
  for (const box of boxes.filter(({ start, stop }) => stop >= first && start <= last)) {
    const x = Math.max(left, xOf(box.start));
    const end = Math.min(right, Math.max(xOf(box.stop), x + 1));
    const before = shapes[shapes.length - 1];
    if (before?.isFine && end - x < FINE && x - before.end < 2) {
      before.end = end;
      before.boxes.push(box);
    } else shapes.push({ x, end, boxes: [box], isFine: end - x < FINE });
  }
  return shapes;
}

// Marks nearer than `near` that look the same are one group, at the first of them; `room` is what there is up to the next one.
export function groupsOf(marks, xOf, near, [first, last]) {
  const open = new Map();
  const groups = [];
  for (const mark of marks.filter(({ at }) => at >= first && at <= last)) {
    const key = `${mark.kind} ${mark.source} ${mark.lane} ${mark.healed}`;
    const x = xOf(mark.at);
    const group = open.get(key);
    if (group) group.room = x - group.x;
    if (group && x - group.x < near) {
      group.marks.push(mark);
      if (mark.weight > group.largest.weight) group.largest = mark;
      continue;
    }
    const started = { x, marks: [mark], largest: mark, room: Infinity };
    open.set(key, started);
    groups.push(started);
  }
  return groups;
}

// Arrows that would lie upon one another, and look like a chain, stand side by side, the last one at its place.
export function spreadArrows(groups, widthOf, most) {
  let free = Infinity;
  for (const group of groups.filter(({ marks }) => marks[0].kind === "hop").reverse()) {
    const half = widthOf(group.largest) / 2;
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
