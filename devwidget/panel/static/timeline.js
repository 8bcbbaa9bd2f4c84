// The timeline: modules as boxes on the lane of their device, hops as arrows, faults as crosses; it zooms, and has an overview.
// Drawn here and not by plotly, whose bars are an element each: a zoom over 10,000 of them takes seconds.
import { h, hueOf } from "./dom.js";
import { boxShapes, firstAfter, gathered, placed, roundStep, spreadArrows } from "./lanes.js";
import { picture, shape } from "./pictures.js";
import { say, sayCount, word } from "./words.js";

const LEFT = 76; // pixels, for the names of the lanes
const RIGHT = 8;
const [HEAD, ROW, BOX, GAP, FOOT] = [20, 18, 17, 8, 22];
const [OVERVIEW, STRIP] = [34, 5];
const NEAR = 14; // pixels between marks, below which they are one
const MOST_NUDGE = 24; // pixels by which an arrow may be off its place
const MARK_SIDE = 8; // pixels, from the middle of a mark to its name
const LETTER = 6.7;
const SMALLEST = 1e-5; // share of the whole that is seen at the deepest zoom
const PHASES = { forward: word("forward"), loss: word("loss"), backward: word("backward"), optimizer: word("optimizer step") };
const CROSS = "M-3.2 -3.2L3.2 3.2M3.2 -3.2L-3.2 3.2";

let drawings = 0;

export class Timeline {
  constructor(className, clicked) {
    this.name = className.replace("dw-", "");
    this.clicked = clicked; // called with what a mark leads to: { path }, { hop } or { finding }
    this.variant = "";
    /** @type {any} */
    this.spot = null; // [place, seconds] to point at
    /** @type {any} */
    this.spec = null;
    /** @type {any} */
    this.lanes = null; // what `placed` says
    this.view = [0, 1]; // what is seen of the line
    this.xOf = (at) => LEFT + ((at - this.view[0]) / (this.view[1] - this.view[0])) * this.room; // its places -> pixels
    this.chosen = -1; // which of the marks the keyboard is at
    this.drawnWidth = 0;
    /** @type {any} */
    this.waiting = null; // the frame in which it will be drawn
    this.room = this.foot = 0; // pixels, of the lanes from left to right, and where they end
    this.tops = new Map(); // where each lane begins
    this.brush = shape("rect", { class: "dw-brush", y: 0.5, height: OVERVIEW - 1 });
    this.grips = [0, 1].map(() => shape("rect", { class: "dw-grip", y: OVERVIEW / 2 - 7, width: 5, height: 14, rx: 2 }));
    /** @type {any[]} */
    this.groups = []; // of marks, as they were drawn last
    this.hatch = `dw-hatch-${drawings++}`;
    this.range = h("span", { class: "dw-soft dw-seen" });
    const button = (text, label, act) => h("button", { class: "dw-button dw-zoom", type: "button", "aria-label": label, title: label, onclick: act }, text);
    const zooms = h("span", { class: "dw-zooms" }, button("+", say("zoom in"), () => this.zoom(0.5)), button("−", say("zoom out"), () => this.zoom(2)), button(say("fit"), say("the whole step"), () => this.look(0, 1)));
    this.axis = h("button", { class: "dw-button dw-axis", type: "button", title: say("Switches between CPU time and the order of events."), onclick: () => this.turn(this.variant ? "" : "time") });
    this.bar = h("div", { class: "dw-timeline-bar" }, this.range, this.axis, zooms);
    this.overview = shape("svg", { class: "dw-overview", "aria-hidden": "true" });
    this.drawing = shape("svg", { class: "dw-lanes", tabindex: "0", role: "application", "aria-roledescription": say("timeline") });
    this.tip = h("div", { class: "dw-tip", role: "status", hidden: true });
    this.canvas = h("div", { class: "dw-canvas" }, this.overview, this.drawing, this.tip);
    this.el = h("div", { class: `dw-figure ${className}` }, this.bar, this.canvas);
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.el);
    this.listen();
  }

  show(spec) {
    if (spec === this.spec) return this.fit();
    this.spec = spec;
    this.spot = null;
    this.el.hidden = !spec;
    this.drawing.replaceChildren();
    if (!spec) return;
    this.drawing.setAttribute("aria-label", `${spec.words}. ${say("W and S zoom, A and D move, 0 shows the whole step; arrow keys go from mark to mark, Enter opens one.")}`);
    this.turn(this.variant);
  }

  turn(variant) {
    this.variant = variant;
    if (!this.spec) return;
    this.axis.hidden = !this.spec.time;
    this.axis.textContent = variant ? say("by order") : say("by time");
    this.lanes = placed(this.spec, variant);
    this.chosen = -1;
    this.drawnWidth = 0;
    this.look(0, 1);
  }

  // Point at a place, where it is by order and by time, and have it in sight.
  point(spot) {
    this.spot = spot;
    const at = this.spotAt();
    const [first, last] = this.view;
    if (at < first || at > last) this.look(at - (last - first) / 2, at + (last - first) / 2);
    else this.draw();
  }

  spotAt() {
    return this.lanes.line.at(this.spot[this.spec.time && this.variant === "time" ? 1 : 0]);
  }

  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    const [first, last] = this.view;
    this.look(around - (around - first) * factor, around + (last - around) * factor);
  }

  move(by) {
    const [first, last] = this.view;
    this.look(first + by * (last - first), last + by * (last - first));
  }

  // See what is between two places of the line.
  look(first, last) {
    const width = Math.min(1, Math.max(SMALLEST, last - first));
    const start = Math.min(1 - width, Math.max(0, first));
    this.view = [start, start + width];
    this.drawSoon();
  }

  fit() {
    if (this.el.clientWidth !== this.drawnWidth) this.draw();
  }

  // -- drawing

  // Once in a frame, however often a wheel turns or a key repeats until then.
  drawSoon() {
    this.waiting ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    if (this.waiting !== null) cancelAnimationFrame(this.waiting);
    this.waiting = null;
    const width = this.el.clientWidth;
    if (!this.spec || !width || this.closed) return;
    if (width !== this.drawnWidth) this.measure(width);
    const [first, last] = this.view;
    this.groups = spreadArrows(gathered(this.lanes.marks, this.xOf, NEAR, this.view), (marks) => widthOf(largestOf(marks)) + 3, MOST_NUDGE);
    for (const group of this.groups) group.end = this.rowOf(group.marks[0].lane, group.marks[0].module);
    this.drawing.replaceChildren(this.hatching(), ...this.bands(), ...this.boxes(), ...this.names(), ...this.groups.map((group) => this.mark(group)), ...this.ticks(), ...this.pointer());
    this.drawBrush();
    const { line } = this.lanes;
    const timed = this.spec.time && this.variant === "time";
    const whole = timed ? this.secondWords(this.lanes.last) : Math.round(this.lanes.last);
    const [from, to] = [line.placeOf(first), line.placeOf(last)].map((place) => (timed ? this.secondWords(place) : Math.round(place)));
    const what = timed ? say("CPU time, {from} to {to} of {whole}", { from, to, whole }) : say("order of events, {from} to {to} of {whole}", { from, to, whole });
    const hidden = this.spec.left_out + this.lanes.hidden;
    this.range.textContent = [what, hidden ? say("nested calls not drawn: {count}", { count: hidden }) : ""].filter(Boolean).join("; ");
  }

  // Heights and the overview, which only another width changes.
  measure(width) {
    this.drawnWidth = width;
    this.room = Math.max(50, width - LEFT - RIGHT);
    let top = HEAD;
    for (const [lane, rows] of this.lanes.heights) {
      this.tops.set(lane, top);
      top += Math.max(1, rows) * ROW + GAP;
    }
    this.foot = top;
    for (const [svg, height] of [[this.drawing, top + FOOT], [this.overview, OVERVIEW]]) {
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("width", width);
      svg.setAttribute("height", height);
    }
    this.drawOverview();
  }

  drawOverview() {
    const xOf = (at) => LEFT + at * this.room;
    const lanes = this.lanes.heights.filter(([lane]) => lane >= 0);
    const step = Math.min(STRIP + 5, (OVERVIEW - 8) / Math.max(1, lanes.length));
    const strips = lanes.map(([lane], n) => {
      const own = this.lanes.rows.filter((row) => row.lane === lane && !row.level);
      const paths = own.map(({ boxes }) => boxShapes(boxes, xOf, [0, 1], [LEFT, LEFT + this.room], Math.round(5 + n * step), Math.min(STRIP, step - 1)).path);
      return shape("path", { class: "dw-strip", d: paths.join(""), style: `--dw-hue:${hueOf(this.spec.lanes[lane])}` });
    });
    const stems = (wrong) => {
      const seen = new Set(this.lanes.marks.filter((mark) => !mark.joined && (mark.kind !== "hop" || mark.healed) === wrong).map((mark) => Math.round(xOf(mark.at))));
      return shape("path", { class: wrong ? "dw-stem-wrong" : "dw-stem", d: [...seen].map((x) => `M${x} 3V${OVERVIEW - 3}`).join("") });
    };
    const edge = shape("rect", { class: "dw-overview-edge", x: LEFT, y: 0.5, width: this.room, height: OVERVIEW - 1 });
    this.overview.replaceChildren(edge, ...strips, stems(false), stems(true), this.brush, ...this.grips);
  }

  drawBrush() {
    const [left, right] = this.view.map((at) => LEFT + at * this.room);
    this.brush.setAttribute("x", left);
    this.brush.setAttribute("width", Math.max(2, right - left));
    this.grips.forEach((grip, n) => grip.setAttribute("x", (n ? right : left) - 2.5));
  }

  // The names of phases, widest first where there is no room for all; an empty one says what is in it.
  bands() {
    const spans = this.lanes.bands.map(([name, start, stop, empty], n) => {
      const [left, right] = [start, stop].map((place) => Math.min(LEFT + this.room, Math.max(LEFT, this.xOf(this.lanes.line.at(place)))));
      return { name: say(PHASES[name] ?? name), left, right, empty, n };
    }).filter(({ left, right }) => right > left + 1);
    const taken = [];
    const named = [...spans].sort((one, other) => other.right - other.left - (one.right - one.left)).flatMap(({ name, left }) => {
      const end = left + 6 + name.length * LETTER;
      if (taken.some(([from, to]) => left < to && end > from) || end > LEFT + this.room + RIGHT) return [];
      taken.push([left, end]);
      return [shape("text", { class: "dw-band-name", x: left + 5, y: 13 }, name)];
    });
    const grounds = spans.map(({ left, right, empty, n }) => shape("rect", { class: empty ? "dw-band dw-band-empty" : `dw-band${n % 2 ? " dw-band-odd" : ""}`, x: left, y: 0, width: right - left, height: this.foot }));
    const told = spans.filter(({ left, right, empty }) => empty && right - left > 60).flatMap(({ left, right, empty }) => {
      const lines = empty.slice(1).flatMap((line) => (cutTo(line, right - left, 5.8) === line ? [line] : line.split(" ")));
      return lines.map((line, row) => shape("text", { class: "dw-band-name", x: (left + right) / 2, y: HEAD + 24 + 15 * row, "text-anchor": "middle" }, cutTo(line, right - left, 5.8)));
    });
    return [...grounds, ...named, ...told];
  }

  // Stripes over the boxes of backward.
  hatching() {
    const stripes = shape("path", { class: "dw-hatch", d: "M-1 7L7 -1M-1 1L1 -1M5 7L7 5" });
    return shape("defs", {}, shape("pattern", { id: this.hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse" }, stripes));
  }

  boxes() {
    const area = [LEFT, LEFT + this.room];
    return this.lanes.rows.flatMap(({ lane, level, gradient, boxes }) => {
      const top = this.tops.get(lane) + level * ROW;
      const { path, names, isFine } = boxShapes(boxes, this.xOf, this.view, area, top, BOX);
      const hue = lane < 0 ? "var(--dw-soft)" : hueOf(this.spec.lanes[lane]);
      const failed = names.filter(({ box }) => this.spec.failed.includes(box)).map(({ x, width }) => shape("rect", { class: "dw-box-failed", x, y: top, width, height: BOX }));
      const texts = names.flatMap(({ box, x, width }) => this.boxName(this.nameOf(box), x, width, top));
      return [shape("path", { class: `dw-box${lane < 0 ? " dw-box-several" : ""}${isFine ? " dw-box-fine" : ""}`, d: path, style: `--dw-hue:${hue};--dw-share:${26 - 4 * Math.min(4, level)}%` }), ...(gradient ? [shape("path", { d: path, fill: `url(#${this.hatch})`, "pointer-events": "none" })] : []), ...failed, ...texts];
    });
  }

  // The name of a box, where the marks that end in it leave the most room.
  boxName(name, x, width, top) {
    const inside = this.groups.filter((group) => group.x > x && group.x < x + width && group.end === top + BOX / 2).map((group) => group.x).sort((one, other) => one - other);
    const starts = [x, ...inside.map((at) => at + MARK_SIDE)];
    const rooms = [...inside.map((at) => at - MARK_SIDE), x + width].map((end, n) => end - starts[n]);
    const room = rooms.find((each) => cutTo(name, each) === name) ?? Math.max(...rooms);
    const text = cutTo(name, room);
    return text ? [shape("text", { class: "dw-box-name", x: starts[rooms.indexOf(room)] + 4, y: top + 12.5 }, text)] : [];
  }

  nameOf(box) {
    const [path, kind] = this.spec.modules[this.spec.module[box]];
    return path.split(".").pop() || kind;
  }

  names() {
    return this.lanes.heights.flatMap(([lane, rows]) => {
      const middle = this.tops.get(lane) + (Math.max(1, rows) * ROW) / 2;
      const name = lane < 0 ? say("multiple") : this.spec.lanes[lane];
      const rule = shape("path", { class: "dw-lane-rule", d: `M0 ${this.tops.get(lane) - GAP / 2}H${LEFT + this.room}` });
      const dot = lane < 0 ? "" : shape("rect", { class: "dw-lane-dot", x: 2, y: middle - 4, width: 8, height: 8, rx: name === "cpu" ? 1 : 4, style: `--dw-hue:${hueOf(name)}` });
      return [rule, dot, shape("text", { class: "dw-lane-name", x: 14, y: middle + 4 }, name)].filter(Boolean);
    });
  }

  // Where a mark ends: at the box of its module, else at the top of the lane.
  rowOf(lane, module) {
    const row = this.lanes.levels.get(`${lane} ${module}`) ?? 0;
    const [, rows] = this.lanes.heights.find(([each]) => each === lane);
    return this.tops.get(lane) + Math.min(row, Math.max(0, rows - 1)) * ROW + BOX / 2;
  }

  // `room` is what there is up to the next mark that looks the same.
  mark(group) {
    const { x, marks, room, end } = group;
    const [mark] = marks;
    const isChosen = marks.includes(this.lanes.marks[this.chosen]);
    const parts = mark.kind === "hop" ? this.hop(group) : [shape("circle", { class: "dw-fault-ground", cx: x, cy: end, r: 6 }), mark.kind === "refused" ? shape("rect", { class: "dw-refused", x: x - 4, y: end - 4, width: 8, height: 8 }) : cross(x, end)];
    group.span ??= [end - 8, end + 8];
    const words = mark.kind === "refused" ? shape("text", { class: "dw-wrong-words", x: x + 10, y: end + 4 }, say("out of memory")) : "";
    const count = marks.length > 1 && room > 40 ? shape("text", { class: "dw-mark-count", x: x + 7, y: (group.span[0] + group.span[1]) / 2 + 4 }, `×${marks.length}`) : "";
    const ring = isChosen ? shape("rect", { class: "dw-chosen", x: x - 9, y: group.span[0] - 4, width: 18, height: group.span[1] - group.span[0] + 8, rx: 6 }) : "";
    const kind = mark.kind === "hop" && mark.fault >= 0 ? "hop-fault" : mark.kind;
    const at = marks.flatMap((each) => (each.kind === "fault" ? each.place : each.fault >= 0 ? this.spec.crossesAt[each.fault] : []));
    return shape("g", { class: `dw-mark${mark.healed || mark.kind !== "hop" ? " dw-mark-wrong" : ""}`, "data-kind": kind, "data-at": at.join(" ") }, ...[...parts, words, count, ring].filter(Boolean));
  }

  // A ring where it leaves, a stem as wide as its bytes, and a head; a healed one ends in the cross of its fault.
  hop(group) {
    const { x, marks, end } = group;
    const largest = largestOf(marks);
    const start = this.tops.get(largest.source) + BOX / 2;
    const down = end > start ? 1 : -1;
    const wide = widthOf(largest);
    const size = 4 + wide / 2;
    group.span = [Math.min(start, end) - 3, Math.max(start, end) + 3];
    const isFault = largest.fault >= 0;
    const stem = shape("path", { class: "dw-hop-stem", d: `M${x} ${start + 3 * down}V${end - (isFault ? 5 : size) * down}`, "stroke-width": wide, "stroke-dasharray": largest.healed ? "2 2" : "none" });
    const ring = shape("circle", { class: "dw-hop-ring", cx: x, cy: start, r: 3 });
    const head = isFault ? [shape("circle", { class: "dw-fault-ground", cx: x, cy: end, r: 6 }), cross(x, end)] : [shape("path", { class: "dw-hop-head", d: `M${x} ${end}L${x - size} ${end - 1.6 * size * down}H${x + size}Z` })];
    return [stem, ring, ...head];
  }

  ticks() {
    const { line } = this.lanes;
    const [first, last] = this.view.map(line.placeOf);
    const seen = line.parts.reduce((sum, { from, to, isNarrow }) => sum + (isNarrow ? 0 : Math.max(0, Math.min(to, last) - Math.max(from, first))), 0);
    const step = roundStep(Math.max(seen, (last - first) * 0.05, 1e-12) / Math.max(2, this.room / 140));
    const timed = this.spec.time && this.variant === "time";
    const texts = [];
    let free = -Infinity;
    for (let place = Math.ceil(first / step) * step, n = 0; place <= last && n < 500; place += step, n++) {
      const x = this.xOf(line.at(place));
      const text = timed ? this.secondWords(place) : step < 1 ? "" : String(Math.round(place));
      const half = (text.length * LETTER) / 2;
      if (!text || x - half < free || x + half > LEFT + this.room + RIGHT || line.parts.some(({ from, to, isNarrow }) => isNarrow && place > from && place < to)) continue;
      free = x + half + 8;
      texts.push(shape("text", { class: "dw-tick", x, y: this.foot + 15, "text-anchor": "middle" }, text));
    }
    return texts;
  }

  secondWords(seconds) {
    const [unit, size] = seconds >= 1 ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e-3] : ["µs", 1e-6];
    return seconds ? `${Number((seconds / size).toPrecision(3))} ${unit}` : "0";
  }

  pointer() {
    if (!this.spot) return [];
    const x = this.xOf(this.spotAt());
    return [shape("path", { class: "dw-pointer", d: `M${x} ${HEAD - 6}V${this.foot}` })];
  }

  // -- the mouse and the keyboard

  listen() {
    this.drawing.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.drawing.addEventListener("pointerdown", (event) => this.press(event));
    this.drawing.addEventListener("pointermove", (event) => this.hover(event));
    this.drawing.addEventListener("pointerleave", () => this.tell(null));
    this.drawing.addEventListener("keydown", (event) => this.key(event));
    this.drawing.addEventListener("blur", () => this.choose(-1));
    this.drawing.addEventListener("dblclick", () => this.look(0, 1));
    this.overview.addEventListener("pointerdown", (event) => this.brushDown(event));
  }

  // A plain wheel scrolls the page.
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(event.deltaY / 300), this.atOf(event));
  }

  atOf(event, [first, last] = this.view) {
    const x = event.clientX - this.drawing.getBoundingClientRect().left;
    return first + ((x - LEFT) / this.room) * (last - first);
  }

  // Drag over the lanes to see that part; a click leads on.
  press(event) {
    if (event.button) return;
    const from = event.clientX;
    const start = this.atOf(event);
    const area = shape("rect", { class: "dw-brush", y: 0, height: this.foot });
    const ended = this.drag(event, (moved) => {
      if (Math.abs(moved.clientX - from) < 4) return area.remove();
      const [left, right] = [start, this.atOf(moved)].sort((one, other) => one - other).map(this.xOf);
      area.setAttribute("x", left);
      area.setAttribute("width", right - left);
      this.drawing.append(area);
    });
    ended.then((last) => {
      area.remove();
      if (Math.abs(last.clientX - from) < 4) return this.follow(this.hit(last));
      const [first, second] = [start, this.atOf(last)].sort((one, other) => one - other);
      this.look(first, second);
    });
  }

  // Move what is seen, or one of its ends.
  brushDown(event) {
    const whole = [0, 1];
    const at = this.atOf(event, whole);
    const [first, last] = this.view;
    const near = 8 / this.room;
    const grip = last - first < 1 || Math.abs(at - first) < near || Math.abs(at - last) < near;
    const end = !grip ? "new" : Math.abs(at - first) < near ? "first" : Math.abs(at - last) < near ? "last" : at > first && at < last ? "both" : "new";
    this.drag(event, (moved) => {
      const now = this.atOf(moved, whole);
      if (end === "both") this.look(first + now - at, last + now - at);
      else if (end === "first") this.look(Math.min(now, last), Math.max(now, last));
      else if (end === "last") this.look(Math.min(first, now), Math.max(first, now));
      else if (Math.abs(now - at) > near) this.look(Math.min(at, now), Math.max(at, now));
    });
  }

  // -> Promise of the event that ends it.
  drag(event, moved) {
    const target = event.currentTarget;
    target.setPointerCapture(event.pointerId);
    target.addEventListener("pointermove", moved);
    return new Promise((go) => {
      const end = (last) => {
        for (const kind of ["pointerup", "pointercancel"]) target.removeEventListener(kind, end);
        target.removeEventListener("pointermove", moved);
        go(last);
      };
      for (const kind of ["pointerup", "pointercancel"]) target.addEventListener(kind, end);
    });
  }

  key(event) {
    const acts = { w: () => this.zoom(0.5), s: () => this.zoom(2), a: () => this.move(-0.25), d: () => this.move(0.25), 0: () => this.look(0, 1), ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), Enter: () => this.follow(this.lanes.marks[this.chosen]), Escape: () => this.choose(-1) };
    const act = acts[event.key] ?? acts[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  }

  // To the next mark that can be seen by itself.
  step(by) {
    const { marks } = this.lanes;
    let next = this.chosen < 0 && by < 0 ? marks.length : this.chosen;
    do next += by;
    while (marks[next]?.joined);
    if (marks[next]) this.choose(next);
  }

  choose(number) {
    if (number === this.chosen || !this.lanes) return;
    this.chosen = number;
    const mark = this.lanes.marks[number];
    const [first, last] = this.view;
    if (mark && (mark.at < first || mark.at > last)) this.look(mark.at - (last - first) / 2, mark.at + (last - first) / 2);
    else this.draw();
    this.tell(mark ?? null, mark && { x: this.xOf(mark.at), y: this.rowOf(mark.lane, mark.module) });
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    this.tell(this.hit(event), { x: event.clientX - box.left, y: event.clientY - this.drawing.getBoundingClientRect().top });
  }

  // The mark, the box or the empty phase under the pointer; the stem of an arrow counts over its whole length.
  hit(event) {
    const area = this.drawing.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const near = this.groups.filter((group) => Math.abs(group.x - x) < 7 && y > group.span[0] - 4 && y < group.span[1] + 4);
    if (near.length) return near.reduce((one, other) => (Math.abs(other.x - x) < Math.abs(one.x - x) ? other : one)).marks;
    const at = this.atOf(event);
    for (const { lane, level, boxes } of this.lanes.rows) {
      const top = this.tops.get(lane) + level * ROW;
      if (y < top || y > top + BOX) continue;
      const found = boxes[firstAfter(boxes, at)];
      if (found && this.xOf(found.start) <= Math.max(x, LEFT)) return { kind: "box", box: found.box };
    }
    const band = this.lanes.bands.find(([, start, stop, empty]) => empty && at >= this.lanes.line.at(start) && at <= this.lanes.line.at(stop));
    return band ? { kind: "band", words: band[3] } : null;
  }

  follow(found) {
    const mark = Array.isArray(found) ? found[0] : found;
    if (!mark) return;
    if (Array.isArray(found) && found.length > 1) return this.spread(found);
    const [path] = this.spec.modules[mark.kind === "box" ? this.spec.module[mark.box] : mark.module] ?? [];
    const finding = mark.fault >= 0 ? this.spec.crosses[mark.fault][3] : mark.finding;
    if (finding >= 0) this.clicked({ finding });
    else if (mark.hop >= 0) this.clicked({ hop: mark.hop });
    else if (path !== undefined) this.clicked({ path });
  }

  // Several marks in one: nearer, so that they come apart; those at one place lead on.
  spread(marks) {
    const [first, last] = [marks[0].at, marks[marks.length - 1].at];
    if (last - first < 4 * SMALLEST) return this.follow(marks[0]);
    this.look(first - (last - first) * 0.2, last + (last - first) * 0.2);
  }

  tell(found, place) {
    const lines = found ? this.words(found) : [];
    this.tip.hidden = !lines.length;
    if (!lines.length) return;
    this.tip.replaceChildren(...lines);
    const room = this.el.clientWidth - this.tip.offsetWidth - 4;
    this.tip.style.left = `${Math.max(0, Math.min(room, place.x + 14))}px`;
    this.tip.style.top = `${place.y + OVERVIEW + 22}px`;
  }

  words(found) {
    const marks = Array.isArray(found) ? found : [found];
    const [mark] = marks;
    if (mark.kind === "band") return mark.words.map((line) => h("div", null, line));
    if (mark.kind === "box") return this.boxWords(mark.box);
    const more = marks.length > 1 ? h("div", { class: "dw-soft" }, say("{count} here; click to separate them", { count: marks.length })) : "";
    return [...(mark.kind === "hop" ? this.hopWords(mark) : [h("div", null, h("b", null, mark.words)), this.moduleWords(mark.module)]), more].filter(Boolean);
  }

  boxWords(box) {
    const [path, kind] = this.spec.modules[this.spec.module[box]];
    return [h("div", null, h("b", null, path || say("the model itself")), ` ${kind}`), h("div", { class: "dw-soft" }, this.spec.facts[box] ?? this.spec.lanes[this.spec.lane[box]])];
  }

  hopWords({ source, lane, bytes, count, hop, module, healed, fault }) {
    const line = this.spec.hops[hop];
    const ends = `${this.spec.lanes[source]} → ${this.spec.lanes[lane]}`;
    const about = [bytes, count > 1 ? sayCount("{count} hop", "{count} hops", count) : "", healed ? say("moved by devwidget") : ""].filter(Boolean).join(", ");
    const fails = fault >= 0 ? h("div", null, this.spec.crosses[fault][2]) : "";
    const from = line ? h("div", { class: "dw-soft" }, [line.what, line.seconds, line.place].filter(Boolean).join("  "), " ", line.code ? h("code", null, line.code) : "") : "";
    return [h("div", null, h("b", null, ends), ` ${about}`), fails, this.moduleWords(module), from].filter(Boolean);
  }

  moduleWords(module) {
    const [path, kind] = this.spec.modules[module] ?? [];
    return path === undefined ? "" : h("div", { class: "dw-soft" }, `${path || say("the model itself")} ${kind}`);
  }

  picture(format) {
    this.draw();
    return picture(this.drawing, format);
  }

  close() {
    this.closed = true;
    this.sizes.disconnect();
  }
}

const largestOf = (marks) => marks.reduce((one, other) => (other.weight > one.weight ? other : one));
const widthOf = ({ weight }) => 1.5 + 4.5 * weight; // pixels, of the stem

function cross(x, y) {
  return shape("path", { class: "dw-fault", d: CROSS, transform: `translate(${x} ${y})` });
}

// As much of a text as there is room for; "" if that is not worth reading.
function cutTo(text, width, letter = LETTER) {
  const most = Math.floor((width - 6) / letter);
  return text.length <= most ? text : most > 3 ? `${text.slice(0, most - 1)}…` : "";
}
