// The timeline: modules as boxes on the lane of their device, hops as arrows, faults as crosses; it zooms, and has an overview.
// Drawn here and not by plotly, whose bars are an element each: a zoom over 10,000 of them takes seconds.
import { createRef } from "preact";
import { Callable, html, newId } from "./base.js";
import { ascending, groupsOf, placed, roundStep, shapesOf, spreadArrows } from "./lanes.js";
import { hueOf, prose } from "./parts.js";
import { picture } from "./pictures.js";
import { say, sayCount, word } from "./words.js";

const LEFT = 76; // pixels, for the names of the lanes
const RIGHT = 8;
const [HEAD, LINE, BOX, GAP, FOOT] = [20, 18, 17, 8, 22];
const [OVERVIEW, STRIP] = [34, 5];
const NEAR = 14; // pixels between marks, below which they are one
const MOST_NUDGE = 24; // pixels by which an arrow may be off its place
const MARK_SIDE = 8; // pixels, from the middle of a mark to its name
const LETTER = 6.7;
const SMALL_LETTER = 5.8;
const TICK_ROOM = 140; // pixels
const SMALLEST = 1e-5; // share of the whole that is seen at the deepest zoom
const CLICK = 4; // pixels that the pointer moves within a click
/** @type {[number, number]} */
const WHOLE = [0, 1];
const PHASES = { forward: word("forward"), loss: word("loss"), backward: word("backward"), optimizer: word("optimizer step") };
const CROSS = "M-3.2 -3.2L3.2 3.2M3.2 -3.2L-3.2 3.2";

// `clicked` is called with what a mark leads to: { path }, { hop } or { finding }; `figures` has those that can be saved.
export class Timeline extends Callable {
  el = createRef();
  drawing = createRef();
  hatch = newId("hatch");
  name = "timeline";
  sizes = new ResizeObserver(() => this.measure());
  tops = new Map(); // where each lane begins
  foot = 0; // where the last one ends
  seen = WHOLE; // what the next frame will show
  frame = 0; // the request of that frame

  // `view` is what is seen of the line, `spot` a place to point at, by order and by time, `told` what the tip says and where,
  // `area` what is being selected.
  static getDerivedStateFromProps({ spec }, before) {
    if (spec === before.spec) return null;
    const variant = spec?.time ? (before.variant ?? "") : "";
    return { spec, variant, lanes: spec && placed(spec, variant), view: WHOLE, spot: null, told: null, area: null };
  }

  componentDidMount() {
    this.props.figures.add(this);
    this.sizes.observe(this.el.current);
    this.measure();
  }

  getSnapshotBeforeUpdate() {
    return this.drawing.current?.contains(document.activeElement);
  }

  // The mark at which the keyboard is may be out of sight, or one with others.
  componentDidUpdate(_, __, wasFocused) {
    if (!this.frame) this.seen = this.state.view;
    if (wasFocused && !this.drawing.current.contains(document.activeElement)) this.drawing.current.focus();
  }

  componentWillUnmount() {
    this.props.figures.delete(this);
    this.sizes.disconnect();
    cancelAnimationFrame(this.frame);
  }

  measure() {
    const width = this.el.current.clientWidth;
    if (width && width !== this.state.width) this.setState({ width });
  }

  get isInSight() {
    return Boolean(this.state.spec && this.el.current?.clientWidth);
  }

  picture(format) {
    return picture(this.drawing.current, format);
  }

  // -- what is seen

  turn() {
    const { spec, variant } = this.state;
    const next = variant ? "" : "time";
    this.setState({ variant: next, lanes: placed(spec, next), view: WHOLE });
  }

  get isTimed() {
    return this.state.variant === "time";
  }

  // Point at a place, where it is by order and by time, and have it in sight.
  point(spot) {
    this.setState({ spot }, () => {
      const at = this.spotAt();
      const [first, last] = this.seen;
      if (at < first || at > last) this.look(at - (last - first) / 2, at + (last - first) / 2);
      this.el.current.scrollIntoView({ block: "nearest" });
    });
  }

  spotAt() {
    return this.state.lanes.line.at(this.state.spot[this.isTimed ? 1 : 0]);
  }

  zoom(factor, around = (this.seen[0] + this.seen[1]) / 2) {
    const [first, last] = this.seen;
    this.look(around - (around - first) * factor, around + (last - around) * factor);
  }

  move(by) {
    const [first, last] = this.seen;
    this.look(first + by * (last - first), last + by * (last - first));
  }

  // See what is between two places of the line, drawn once in a frame, however often a wheel turns or a key repeats until then.
  look(...ends) {
    const [first, last] = ends.sort(ascending);
    const width = Math.min(1, Math.max(SMALLEST, last - first));
    const start = Math.min(1 - width, Math.max(0, first));
    this.seen = [start, start + width];
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.setState({ view: this.seen });
    });
  }

  // -- places in pixels

  get room() {
    return Math.max(50, this.state.width - LEFT - RIGHT);
  }

  get right() {
    return LEFT + this.room;
  }

  xOf = (at, [first, last] = this.state.view) => LEFT + ((at - first) / (last - first)) * this.room;

  atOf(x, [first, last] = this.state.view) {
    return first + ((x - LEFT) / this.room) * (last - first);
  }

  atEvent({ clientX }, view = this.state.view) {
    return this.atOf(clientX - this.drawing.current.getBoundingClientRect().left, view);
  }

  layOut() {
    this.tops = new Map();
    this.foot = HEAD;
    for (const [lane, rows] of this.state.lanes.heights) {
      this.tops.set(lane, this.foot);
      this.foot += rows * LINE + GAP;
    }
  }

  // -- drawing

  render({ spec }, { variant, width, told }) {
    const button = (text, label, act) => html`<button class="dw-button dw-zoom" aria-label=${label} title=${label} onclick=${act}>${text}</button>`;
    const place = told && `left:${told.x}px;top:${told.y}px;transform:translateX(${(-100 * told.x) / width}%)`;
    return html`
      <div ref=${this.el} class="dw-figure dw-timeline" hidden=${!spec}>
        <div class="dw-timeline-bar">
          <span class="dw-soft dw-seen">${spec && this.rangeWords()}</span>
          <button
            class="dw-button dw-axis" hidden=${!spec?.time} title=${say("Switches between CPU time and the order of events.")}
            onclick=${() => this.turn()}
          >${variant ? say("by order") : say("by time")}</button>
          <span class="dw-zooms">
            ${button("+", say("zoom in"), () => this.zoom(0.5))}
            ${button("−", say("zoom out"), () => this.zoom(2))}
            ${button(say("fit"), say("the whole step"), () => this.look(...WHOLE))}
          </span>
        </div>
        <div class="dw-canvas">
          ${spec && width && this.drawings(width)}
          <div class="dw-tip" role="status" hidden=${!told} style=${place}>${told?.words}</div>
        </div>
      </div>
    `;
  }

  rangeWords() {
    const { spec, lanes, view } = this.state;
    const wordsOf = (place) => (this.isTimed ? secondWords(place) : Math.round(place));
    const [from, to] = view.map((at) => wordsOf(lanes.line.placeOf(at)));
    const facts = { from, to, whole: wordsOf(lanes.last) };
    const what = this.isTimed ? say("CPU time, {from} to {to} of {whole}", facts) : say("order of events, {from} to {to} of {whole}", facts);
    const count = spec.left_out + lanes.hidden;
    return [what, count && say("nested calls not drawn: {count}", { count })].filter(Boolean).join("; ");
  }

  drawings(width) {
    this.layOut();
    const { spec, lanes, view, area, spot } = this.state;
    const groups = spreadArrows(groupsOf(lanes.marks, this.xOf, NEAR, view), (mark) => widthOf(mark) + 3, MOST_NUDGE);
    for (const group of groups) this.place(group);
    const label = `${spec.words}. ${say("W and S zoom, A and D move, 0 shows the whole step; arrow keys go from mark to mark, Enter opens one.")}`;
    return html`
      ${this.overview(width)}
      <svg
        ref=${this.drawing} class="dw-lanes" tabindex="0" role="application" aria-roledescription=${say("timeline")} aria-label=${label}
        viewBox=${`0 0 ${width} ${this.foot + FOOT}`} width=${width} height=${this.foot + FOOT}
        onwheel=${(event) => this.wheel(event)} onpointerdown=${(event) => this.press(event)} onkeydown=${(event) => this.key(event)}
        ondblclick=${() => this.look(...WHOLE)}
      >
        <defs>
          <pattern id=${this.hatch} width="6" height="6" patternUnits="userSpaceOnUse"><path class="dw-hatch" d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" /></pattern>
        </defs>
        ${this.bands()}
        ${lanes.rows.map((row) => this.boxes(row, groups))}
        ${lanes.heights.map((lane) => this.laneName(lane))}
        ${groups.map((group) => this.mark(group))}
        ${this.ticks()}
        ${spot && html`<path class="dw-pointer" d=${`M${this.xOf(this.spotAt())} ${HEAD - 6}V${this.foot}`} />`}
        ${area && html`<rect class="dw-brush" y="0" height=${this.foot} x=${area[0]} width=${area[1] - area[0]} />`}
      </svg>
    `;
  }

  overview(width) {
    const { spec, lanes, view } = this.state;
    const shown = lanes.heights.filter(([lane]) => lane >= 0);
    const step = Math.min(STRIP + 5, (OVERVIEW - 8) / Math.max(1, shown.length));
    const xOf = (place) => this.xOf(place, WHOLE);
    const [left, right] = view.map(xOf);
    const isWhole = right - left === this.room;
    const grip = (x, end) => html`<rect class="dw-grip" data-end=${end} x=${x - 2.5} y=${OVERVIEW / 2 - 7} width="5" height="14" rx="2" />`;
    const strip = ([lane], n) => {
      const own = lanes.rows.filter((row) => row.lane === lane && !row.level).flatMap((row) => shapesOf(row.boxes, xOf, WHOLE));
      return html`<path class="dw-strip" d=${pathOf(own, Math.round(5 + n * step), Math.min(STRIP, step - 1))} style=${`--dw-hue:${hueOf(spec.lanes[lane])}`} />`;
    };
    const stems = (look, marks) => {
      const places = new Set(marks.map((mark) => Math.round(xOf(mark.at))));
      return html`<path class=${look} d=${[...places].map((x) => `M${x} 3V${OVERVIEW - 3}`).join("")} />`;
    };
    return html`
      <svg
        class="dw-overview" aria-hidden="true" viewBox=${`0 0 ${width} ${OVERVIEW}`} width=${width} height=${OVERVIEW}
        onpointerdown=${(event) => this.brush(event)}
      >
        <rect class="dw-overview-edge" x=${LEFT} y="0.5" width=${this.room} height=${OVERVIEW - 1} />
        ${shown.map(strip)}
        ${stems("dw-stem", lanes.marks.filter((mark) => !isWrong(mark)))}
        ${stems("dw-stem-wrong", lanes.marks.filter(isWrong))}
        <rect class="dw-brush" data-end=${isWhole ? "new" : "both"} x=${left} y="0.5" width=${Math.max(2, right - left)} height=${OVERVIEW - 1} />
        ${grip(left, "first")}${grip(right, "last")}
      </svg>
    `;
  }

  // Phases; of their names those that end before the next one begins. An empty one says what is in it.
  bands() {
    const { lanes } = this.state;
    const inside = (place) => Math.min(this.right, Math.max(LEFT, this.xOf(lanes.line.at(place))));
    const all = lanes.bands.map(([name, start, stop, empty], n) => ({ name: say(PHASES[name] ?? name), left: inside(start), right: inside(stop), empty, n }));
    const spans = all.filter(({ left, right }) => right > left + 1);
    const ground = ({ left, right, empty, n }) => {
      const look = n % 2 ? "dw-band dw-band-odd" : "dw-band";
      const facts = empty && this.spoken(() => empty.map((line) => html`<div>${prose(line)}</div>`));
      return html`<rect class=${empty ? "dw-band dw-band-empty" : look} x=${left} y="0" width=${right - left} height=${this.foot} ...${facts} />`;
    };
    let free = this.right + RIGHT;
    const named = [...spans].reverse().filter(({ name, left }) => {
      const hasRoom = left + 6 + name.length * LETTER <= free;
      if (hasRoom) free = left;
      return hasRoom;
    });
    const title = ({ name, left }) => html`<text class="dw-band-name" x=${left + 5} y="13">${name}</text>`;
    return html`${spans.map(ground)}${named.map(title)}${spans.map(emptyWords)}`;
  }

  boxes({ lane, level, gradient, boxes }, groups) {
    const { spec, view } = this.state;
    const top = this.tops.get(lane) + level * LINE;
    const shapes = shapesOf(boxes, this.xOf, view);
    const hue = lane < 0 ? "var(--dw-soft)" : hueOf(spec.lanes[lane]);
    const wide = shapes.filter(({ isFine }) => !isFine);
    const shape = ({ x, end, boxes, isFine }) => {
      const failed = boxes.some(({ box }) => spec.failed.includes(box));
      const looks = ["dw-box", lane < 0 && "dw-box-several", isFine && "dw-box-fine", failed && "dw-box-failed"].filter(Boolean).join(" ");
      return html`<rect class=${looks} x=${x} y=${top} width=${end - x} height=${BOX} ...${this.leading(boxes, (each) => this.boxWords(each))} />`;
    };
    return html`
      <g style=${`--dw-hue:${hue};--dw-share:${26 - 4 * Math.min(4, level)}%`}>${shapes.map(shape)}</g>
      ${gradient && html`<path d=${pathOf(shapes, top, BOX)} fill=${`url(#${this.hatch})`} pointer-events="none" />`}
      ${wide.map(({ x, end, boxes: [each] }) => this.boxName(this.nameOf(each.box), x, end, top, groups))}
    `;
  }

  // The name of a box, where the marks that end in it leave the most room.
  boxName(name, x, end, top, groups) {
    const ending = groups.filter((group) => group.x > x && group.x < end && group.end === top + BOX / 2);
    const inside = ending.map((group) => group.x).sort(ascending);
    const starts = [x, ...inside.map((at) => at + MARK_SIDE)];
    const rooms = [...inside.map((at) => at - MARK_SIDE), end].map((stop, n) => stop - starts[n]);
    const room = rooms.find((each) => cutTo(name, each) === name) ?? Math.max(...rooms);
    const text = cutTo(name, room);
    return text && html`<text class="dw-box-name" x=${starts[rooms.indexOf(room)] + 4} y=${top + 12.5}>${text}</text>`;
  }

  nameOf(box) {
    const [path, kind] = this.moduleOf(box);
    return path.split(".").pop() || kind;
  }

  moduleOf(box) {
    const { spec } = this.state;
    return spec.modules[spec.module[box]];
  }

  laneName([lane, rows]) {
    const top = this.tops.get(lane);
    const middle = top + (rows * LINE) / 2;
    const name = lane < 0 ? say("multiple") : this.state.spec.lanes[lane];
    const look = `--dw-hue:${hueOf(name)}`;
    return html`
      <path class="dw-lane-rule" d=${`M0 ${top - GAP / 2}H${this.right}`} />
      ${lane >= 0 && html`<rect class="dw-lane-dot" x="2" y=${middle - 4} width="8" height="8" rx=${name === "cpu" ? 1 : 4} style=${look} />`}
      <text class="dw-lane-name" x="14" y=${middle + 4}>${name}</text>
    `;
  }

  // A group of marks from top to bottom: an arrow from the lane that it leaves to the box of its module, or to its lane.
  place(group) {
    const { lane, module, kind } = group.marks[0];
    const { levels, heights } = this.state.lanes;
    const rows = new Map(heights).get(lane);
    group.end = this.tops.get(lane) + Math.min(levels.get(`${lane} ${module}`) ?? 0, rows - 1) * LINE + BOX / 2;
    group.start = kind === "hop" ? this.tops.get(group.largest.source) + BOX / 2 : group.end;
  }

  mark(group) {
    const { x, marks, room, start, end } = group;
    const [mark] = marks;
    const top = Math.min(start, end) - MARK_SIDE;
    const height = Math.abs(end - start) + 2 * MARK_SIDE;
    const kind = mark.kind === "hop" && mark.fault >= 0 ? "hop-fault" : mark.kind;
    const count = marks.length > 1 && room > 40;
    return html`
      <g
        key=${`${kind} ${mark.at} ${mark.source} ${mark.lane}`} class=${isWrong(mark) ? "dw-mark dw-mark-wrong" : "dw-mark"} data-kind=${kind}
        data-at=${marks.flatMap((each) => this.faultsAt(each)).join(" ")} tabindex="-1" ...${this.leading(marks, (each) => this.markWords(each))}
      >
        <rect class="dw-hit" x=${x - 6} y=${top} width="12" height=${height} />
        ${mark.kind === "hop" ? hopShape(group) : faultShape(mark.kind, x, end)}
        ${mark.kind === "refused" && this.refusedWords(x, end)}
        ${count && html`<text class="dw-mark-count" x=${x + 7} y=${(start + end) / 2 + 4}>×${marks.length}</text>`}
      </g>
    `;
  }

  faultsAt(mark) {
    if (mark.kind === "fault") return mark.place;
    return mark.fault >= 0 ? this.state.spec.crossesAt[mark.fault] : [];
  }

  // Right of the mark, or left of it where the page ends.
  refusedWords(x, y) {
    const words = say("out of memory");
    const isCut = x + 10 + words.length * LETTER > this.state.width;
    return html`<text class="dw-wrong-words" x=${isCut ? x - 10 : x + 10} y=${y + 4} text-anchor=${isCut ? "end" : "start"}>${words}</text>`;
  }

  // A round place in each stretch of the axis: where an empty phase is short, the places next to it stay near each other.
  ticks() {
    const { line } = this.state.lanes;
    const texts = [];
    let free = 0;
    for (let x = LEFT; x < this.right; x += TICK_ROOM) {
      const [from, to] = [x, Math.min(this.right, x + TICK_ROOM)].map((each) => line.placeOf(this.atOf(each)));
      const step = Math.max(roundStep((to - from) / 1.5), this.isTimed ? 0 : 1);
      for (let place = Math.ceil(from / step) * step; place < to; place += step) {
        const text = this.isTimed ? secondWords(place) : String(Math.round(place));
        const middle = this.xOf(line.at(place));
        const half = (text.length * LETTER) / 2;
        if (middle - half < free || middle + half > this.right + RIGHT) continue;
        free = middle + half + 8;
        texts.push(html`<text class="dw-tick" x=${middle} y=${this.foot + 15} text-anchor="middle">${text}</text>`);
      }
    }
    return texts;
  }

  // -- the mouse and the keyboard

  // A plain wheel scrolls the page.
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(event.deltaY / 300), this.atEvent(event));
  }

  // Drag over the lanes to see that part.
  press(event) {
    if (event.button) return;
    const start = this.atEvent(event);
    const draw = (moved) => this.setState({ area: [start, this.atEvent(moved)].map((at) => this.xOf(at)).sort(ascending) });
    this.drag(event, draw, (last) => {
      this.setState({ area: null });
      this.look(start, this.atEvent(last));
    });
  }

  // Move what is seen, or one of its ends, or see another part.
  brush(event) {
    const [first, last] = this.seen;
    const start = this.atEvent(event, WHOLE);
    const { end = "new" } = event.target.dataset;
    this.drag(event, (moved) => {
      const at = this.atEvent(moved, WHOLE);
      const ends = { first: [at, last], last: [first, at], both: [first + at - start, last + at - start], new: [start, at] };
      this.look(...ends[end]);
    });
  }

  // What is captured gives no click to what is below the pointer.
  drag(event, moved, ended = (_) => {}) {
    const { currentTarget: target, pointerId, clientX } = event;
    const over = new AbortController();
    const move = (each) => {
      if (Math.abs(each.clientX - clientX) >= CLICK) target.setPointerCapture(pointerId);
      if (target.hasPointerCapture(pointerId)) moved(each);
    };
    const end = (last) => {
      over.abort();
      if (target.hasPointerCapture(pointerId)) ended(last);
    };
    target.addEventListener("pointermove", move, over);
    for (const kind of ["pointerup", "pointercancel"]) target.addEventListener(kind, end, over);
  }

  key(event) {
    const acts = {
      w: () => this.zoom(0.5),
      s: () => this.zoom(2),
      a: () => this.move(-0.25),
      d: () => this.move(0.25),
      0: () => this.look(...WHOLE),
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      Enter: () => event.target.dispatchEvent(new MouseEvent("click")),
      Escape: () => this.drawing.current.focus(),
    };
    const act = acts[event.key] ?? acts[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  }

  // To the next mark in sight, else to what is beside it.
  step(by) {
    const marks = [...this.drawing.current.querySelectorAll(".dw-mark")];
    const at = marks.indexOf(document.activeElement);
    const first = by > 0 ? 0 : marks.length - 1;
    const next = marks[at < 0 ? first : at + by];
    if (next) next.focus({ preventScroll: true });
    else this.move(by / 2);
  }

  // What an element says while the pointer or the keyboard is on it.
  spoken(words) {
    const tell = (event) => {
      const ground = this.drawing.current.getBoundingClientRect();
      const { left, bottom } = event.currentTarget.getBoundingClientRect();
      const { clientX = left, clientY = bottom } = event;
      this.setState({ told: { words: words(), x: clientX - ground.left, y: clientY - ground.top + OVERVIEW + 22 } });
    };
    const still = () => this.state.told && this.setState({ told: null });
    return { onpointerenter: tell, onfocus: tell, onpointerleave: still, onblur: still };
  }

  // The same, and where a click leads: several marks or boxes in one come apart, one leads on.
  leading(found, wordsOf) {
    const more = () => html`<div class="dw-soft">${say("{count} here; click to separate them", { count: found.length })}</div>`;
    const words = () => html`${wordsOf(found[0])}${found.length > 1 && more()}`;
    return { ...this.spoken(words), onclick: () => this.follow(found) };
  }

  follow(found) {
    const { spec } = this.state;
    const [first] = found;
    const ends = [first, found[found.length - 1]].map(({ at, start = at, stop = at }) => [start, stop]);
    const [from, to] = [ends[0][0], ends[1][1]];
    this.setState({ told: null }); // it would stay over what it leads to
    if (found.length > 1 && to - from > 4 * SMALLEST) return this.look(from - (to - from) * 0.2, to + (to - from) * 0.2);
    const [path] = (first.kind ? spec.modules[first.module] : this.moduleOf(first.box)) ?? [];
    const finding = first.fault >= 0 ? spec.crosses[first.fault][3] : first.finding;
    if (finding >= 0) this.props.clicked({ finding });
    else if (first.hop >= 0) this.props.clicked({ hop: first.hop });
    else if (path !== undefined) this.props.clicked({ path });
  }

  // -- words

  boxWords({ box }) {
    const { spec } = this.state;
    const [path, kind] = this.moduleOf(box);
    const facts = spec.facts[box] ?? spec.lanes[spec.lane[box]];
    return html`<div><b>${path || say("the model itself")}</b> ${kind}</div><div class="dw-soft">${prose(facts)}</div>`;
  }

  markWords(mark) {
    const { spec } = this.state;
    const { source, lane, bytes, count, hop, module, healed, fault } = mark;
    const [path, kind] = spec.modules[module] ?? [];
    const where = path !== undefined && html`<div class="dw-soft">${path || say("the model itself")} ${kind}</div>`;
    if (mark.kind !== "hop") return html`<div><b>${prose(mark.words)}</b></div>${where}`;
    const line = this.props.hops[hop];
    const about = [bytes, count > 1 && sayCount("{count} hop", "{count} hops", count), healed && say("moved by devwidget")];
    return html`
      <div><b>${spec.lanes[source]} → ${spec.lanes[lane]}</b> ${about.filter(Boolean).join(", ")}</div>
      ${fault >= 0 && html`<div>${prose(spec.crosses[fault][2])}</div>`}
      ${where}
      ${line && html`<div class="dw-soft">${[line.what, line.seconds, line.place].filter(Boolean).join("  ")} ${line.code && html`<code>${line.code}</code>`}</div>`}
    `;
  }
}

const isWrong = ({ kind, healed }) => kind !== "hop" || healed;
const widthOf = ({ weight }) => 1.5 + 4.5 * weight; // pixels, of the stem

function pathOf(shapes, y, height) {
  return shapes.map(({ x, end }) => `M${x.toFixed(1)} ${y}H${end.toFixed(1)}V${y + height}H${x.toFixed(1)}Z`).join("");
}

// A ring where it leaves, a stem as wide as its bytes, and a head; a healed one ends in the cross of its fault.
function hopShape({ x, start, end, largest }) {
  const down = end > start ? 1 : -1;
  const wide = widthOf(largest);
  const size = 4 + wide / 2;
  const isFault = largest.fault >= 0;
  const foot = end - (isFault ? 5 : size) * down;
  return html`
    <path class="dw-hop-stem" d=${`M${x} ${start + 3 * down}V${foot}`} stroke-width=${wide} stroke-dasharray=${largest.healed ? "2 2" : "none"} />
    <circle class="dw-hop-ring" cx=${x} cy=${start} r="3" />
    ${isFault ? faultShape("fault", x, end) : html`<path class="dw-hop-head" d=${`M${x} ${end}L${x - size} ${end - 1.6 * size * down}H${x + size}Z`} />`}
  `;
}

function faultShape(kind, x, y) {
  const square = html`<rect class="dw-refused" x=${x - 4} y=${y - 4} width="8" height="8" />`;
  const cross = html`<path class="dw-fault" d=${CROSS} transform=${`translate(${x} ${y})`} />`;
  return html`<circle class="dw-fault-ground" cx=${x} cy=${y} r="6" />${kind === "refused" ? square : cross}`;
}

// What an empty phase says, where it is wide enough.
function emptyWords({ left, right, empty }) {
  const room = right - left;
  if (!empty || room <= 60) return "";
  const fits = (line) => cutTo(line, room, SMALL_LETTER) === line;
  const lines = empty.slice(1).flatMap((line) => (fits(line) ? [line] : line.split(" ")));
  const place = (row) => ({ x: (left + right) / 2, y: HEAD + 24 + 15 * row, "text-anchor": "middle" });
  return lines.map((line, row) => html`<text class="dw-band-name" ...${place(row)}>${cutTo(line, room, SMALL_LETTER)}</text>`);
}

function secondWords(seconds) {
  if (!seconds) return "0";
  const [unit, size] = seconds >= 1 ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e-3] : ["µs", 1e-6];
  return `${Number((seconds / size).toPrecision(3))} ${unit}`;
}

// As much of a text as there is room for; "" if that is not worth reading.
function cutTo(text, width, letter = LETTER) {
  const most = Math.floor((width - 6) / letter);
  if (text.length <= most) return text;
  return most > 3 ? `${text.slice(0, most - 1)}…` : "";
}
