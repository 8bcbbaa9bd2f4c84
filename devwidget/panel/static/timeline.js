// The timeline: modules as boxes on the lane of their device, hops as arrows, faults as crosses; it zooms, and has an overview.
// Drawn here and not by plotly, whose bars are an element each: a zoom over 10,000 of them takes seconds.
import { createRef } from "preact";
import { Callable, html, newId } from "./base.js";
import { boxShapes, firstAfter, gathered, placed, roundStep, spreadArrows } from "./lanes.js";
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
const SMALLEST = 1e-5; // share of the whole that is seen at the deepest zoom
const CLICK = 4; // pixels that the pointer moves within a click
const WHOLE = [0, 1];
const PHASES = { forward: word("forward"), loss: word("loss"), backward: word("backward"), optimizer: word("optimizer step") };
const CROSS = "M-3.2 -3.2L3.2 3.2M3.2 -3.2L-3.2 3.2";

const ascending = (one, other) => one - other;

// `clicked` is called with what a mark leads to: { path }, { hop } or { finding }; `figures` has those that can be saved.
export class Timeline extends Callable {
  el = createRef();
  drawing = createRef();
  tip = createRef();
  hatch = newId("hatch");
  name = "timeline";
  sizes = new ResizeObserver(() => this.measure());
  /** @type {any[]} */
  groups = []; // of marks, as they were drawn last
  tops = new Map(); // where each lane begins
  foot = 0; // where the last one ends
  seen = WHOLE; // what the next frame will show
  frame = 0; // the request of that frame

  // `view` is what is seen of the line, `chosen` the mark at which the keyboard is, `spot` a place to point at, by order and by time,
  // `told` what the tip says, `area` what is being selected.
  static getDerivedStateFromProps({ spec }, before) {
    if (spec === before.spec) return null;
    const variant = spec?.time ? (before.variant ?? "") : "";
    const lanes = spec && placed(spec, variant);
    return { spec, variant, lanes, view: WHOLE, chosen: -1, spot: null, told: null, area: null };
  }

  componentDidMount() {
    this.props.figures.add(this);
    this.sizes.observe(this.el.current);
    this.measure();
  }

  componentDidUpdate() {
    if (!this.frame) this.seen = this.state.view;
    this.placeTip();
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
    this.setState({ variant: next, lanes: placed(spec, next), view: WHOLE, chosen: -1 });
  }

  // Point at a place, where it is by order and by time, and have it in sight.
  point(spot) {
    this.setState({ spot }, () => {
      this.bringIn(this.spotAt());
      this.el.current.scrollIntoView({ block: "nearest" });
    });
  }

  spotAt() {
    const { spot, lanes } = this.state;
    return lanes.line.at(spot[this.isTimed ? 1 : 0]);
  }

  get isTimed() {
    return Boolean(this.state.spec.time && this.state.variant === "time");
  }

  bringIn(at) {
    const [first, last] = this.seen;
    if (at < first || at > last) this.look(at - (last - first) / 2, at + (last - first) / 2);
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
  look(first, last) {
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

  xOf = (at) => {
    const [first, last] = this.state.view;
    return LEFT + ((at - first) / (last - first)) * this.room;
  };

  layOut() {
    this.tops = new Map();
    this.foot = HEAD;
    for (const [lane, rows] of this.state.lanes.heights) {
      this.tops.set(lane, this.foot);
      this.foot += Math.max(1, rows) * LINE + GAP;
    }
  }

  // Where a mark ends: at the box of its module, else at the top of the lane.
  rowOf(lane, module) {
    const { levels, heights } = this.state.lanes;
    const [, rows] = heights.find(([each]) => each === lane);
    const row = Math.min(levels.get(`${lane} ${module}`) ?? 0, Math.max(0, rows - 1));
    return this.tops.get(lane) + row * LINE + BOX / 2;
  }

  // -- drawing

  render({ spec }, { variant, width, told }) {
    const button = (text, label, act) => html`<button class="dw-button dw-zoom" aria-label=${label} title=${label} onclick=${act}>${text}</button>`;
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
          <div ref=${this.tip} class="dw-tip" role="status" hidden=${!told}>${told && this.words(told.found)}</div>
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
    const { spec, lanes, view, area, chosen } = this.state;
    const gatheredMarks = gathered(lanes.marks, this.xOf, NEAR, view);
    this.groups = spreadArrows(gatheredMarks, (marks) => widthOf(largestOf(marks)) + 3, MOST_NUDGE);
    for (const group of this.groups) this.measureGroup(group);
    const label = `${spec.words}. ${say("W and S zoom, A and D move, 0 shows the whole step; arrow keys go from mark to mark, Enter opens one.")}`;
    return html`
      ${this.overview(width)}
      <svg
        ref=${this.drawing} class="dw-lanes" tabindex="0" role="application" aria-roledescription=${say("timeline")} aria-label=${label}
        viewBox=${`0 0 ${width} ${this.foot + FOOT}`} width=${width} height=${this.foot + FOOT}
        onwheel=${(event) => this.wheel(event)} onpointerdown=${(event) => this.press(event)} onpointermove=${(event) => this.hover(event)}
        onpointerleave=${() => this.tell(null)} onkeydown=${(event) => this.key(event)} onblur=${() => this.choose(-1)}
        ondblclick=${() => this.look(...WHOLE)}
      >
        <defs>
          <pattern id=${this.hatch} width="6" height="6" patternUnits="userSpaceOnUse"><path class="dw-hatch" d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" /></pattern>
        </defs>
        ${this.bands()}
        ${lanes.rows.map((row) => this.boxes(row))}
        ${lanes.heights.map((lane) => this.laneName(lane))}
        ${this.groups.map((group) => this.mark(group, lanes.marks[chosen]))}
        ${this.ticks()}
        ${this.state.spot && html`<path class="dw-pointer" d=${`M${this.xOf(this.spotAt())} ${HEAD - 6}V${this.foot}`} />`}
        ${area && html`<rect class="dw-brush" y="0" height=${this.foot} x=${area[0]} width=${area[1] - area[0]} />`}
      </svg>
    `;
  }

  overview(width) {
    const { spec, lanes, view } = this.state;
    const shown = lanes.heights.filter(([lane]) => lane >= 0);
    const step = Math.min(STRIP + 5, (OVERVIEW - 8) / Math.max(1, shown.length));
    const xOf = (at) => LEFT + at * this.room;
    const [left, right] = view.map(xOf);
    const grip = (x) => html`<rect class="dw-grip" x=${x - 2.5} y=${OVERVIEW / 2 - 7} width="5" height="14" rx="2" />`;
    const strip = ([lane], n) => {
      const own = lanes.rows.filter((row) => row.lane === lane && !row.level);
      const paths = own.map(({ boxes }) => boxShapes(boxes, xOf, WHOLE, [LEFT, this.right], Math.round(5 + n * step), Math.min(STRIP, step - 1)).path);
      return html`<path class="dw-strip" d=${paths.join("")} style=${`--dw-hue:${hueOf(spec.lanes[lane])}`} />`;
    };
    const stems = (isWrong) => {
      const marks = lanes.marks.filter((mark) => !mark.joined && (mark.kind !== "hop" || mark.healed) === isWrong);
      const places = new Set(marks.map((mark) => Math.round(xOf(mark.at))));
      return html`<path class=${isWrong ? "dw-stem-wrong" : "dw-stem"} d=${[...places].map((x) => `M${x} 3V${OVERVIEW - 3}`).join("")} />`;
    };
    return html`
      <svg
        class="dw-overview" aria-hidden="true" viewBox=${`0 0 ${width} ${OVERVIEW}`} width=${width} height=${OVERVIEW}
        onpointerdown=${(event) => this.brushDown(event)}
      >
        <rect class="dw-overview-edge" x=${LEFT} y="0.5" width=${this.room} height=${OVERVIEW - 1} />
        ${shown.map(strip)}${stems(false)}${stems(true)}
        <rect class="dw-brush" x=${left} y="0.5" width=${Math.max(2, right - left)} height=${OVERVIEW - 1} />
        ${grip(left)}${grip(right)}
      </svg>
    `;
  }

  // The names of phases, widest first where there is no room for all; an empty one says what is in it.
  bands() {
    const { lanes } = this.state;
    const inside = (place) => Math.min(this.right, Math.max(LEFT, this.xOf(lanes.line.at(place))));
    const all = lanes.bands.map(([name, start, stop, empty], n) => ({ name: say(PHASES[name] ?? name), left: inside(start), right: inside(stop), empty, n }));
    const spans = all.filter(({ left, right }) => right > left + 1);
    const ground = ({ left, right, empty, n }) => {
      const look = n % 2 ? "dw-band dw-band-odd" : "dw-band";
      return html`<rect class=${empty ? "dw-band dw-band-empty" : look} x=${left} y="0" width=${right - left} height=${this.foot} />`;
    };
    const title = ({ name, left }) => html`<text class="dw-band-name" x=${left + 5} y="13">${name}</text>`;
    return html`${spans.map(ground)}${this.namedBands(spans).map(title)}${spans.map(emptyWords)}`;
  }

  namedBands(spans) {
    const taken = [];
    const widest = [...spans].sort((one, other) => other.right - other.left - (one.right - one.left));
    return widest.filter(({ name, left }) => {
      const end = left + 6 + name.length * LETTER;
      if (taken.some(([from, to]) => left < to && end > from) || end > this.right + RIGHT) return false;
      taken.push([left, end]);
      return true;
    });
  }

  boxes({ lane, level, gradient, boxes }) {
    const { spec, view } = this.state;
    const top = this.tops.get(lane) + level * LINE;
    const { path, names, isFine } = boxShapes(boxes, this.xOf, view, [LEFT, this.right], top, BOX);
    const looks = ["dw-box", lane < 0 && "dw-box-several", isFine && "dw-box-fine"].filter(Boolean).join(" ");
    const hue = lane < 0 ? "var(--dw-soft)" : hueOf(spec.lanes[lane]);
    const failed = names.filter(({ box }) => spec.failed.includes(box));
    return html`
      <path class=${looks} d=${path} style=${`--dw-hue:${hue};--dw-share:${26 - 4 * Math.min(4, level)}%`} />
      ${gradient && html`<path d=${path} fill=${`url(#${this.hatch})`} pointer-events="none" />`}
      ${failed.map(({ x, width }) => html`<rect class="dw-box-failed" x=${x} y=${top} width=${width} height=${BOX} />`)}
      ${names.map(({ box, x, width }) => this.boxName(this.nameOf(box), x, width, top))}
    `;
  }

  // The name of a box, where the marks that end in it leave the most room.
  boxName(name, x, width, top) {
    const ending = this.groups.filter((group) => group.x > x && group.x < x + width && group.end === top + BOX / 2);
    const inside = ending.map((group) => group.x).sort(ascending);
    const starts = [x, ...inside.map((at) => at + MARK_SIDE)];
    const rooms = [...inside.map((at) => at - MARK_SIDE), x + width].map((end, n) => end - starts[n]);
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
    const middle = top + (Math.max(1, rows) * LINE) / 2;
    const name = lane < 0 ? say("multiple") : this.state.spec.lanes[lane];
    const look = `--dw-hue:${hueOf(name)}`;
    return html`
      <path class="dw-lane-rule" d=${`M0 ${top - GAP / 2}H${this.right}`} />
      ${lane >= 0 && html`<rect class="dw-lane-dot" x="2" y=${middle - 4} width="8" height="8" rx=${name === "cpu" ? 1 : 4} style=${look} />`}
      <text class="dw-lane-name" x="14" y=${middle + 4}>${name}</text>
    `;
  }

  // Where a group of marks is from top to bottom: an arrow from the lane that it leaves to its box.
  measureGroup(group) {
    const [mark] = group.marks;
    group.end = this.rowOf(mark.lane, mark.module);
    group.largest = largestOf(group.marks);
    group.start = mark.kind === "hop" ? this.tops.get(group.largest.source) + BOX / 2 : group.end;
    const half = mark.kind === "hop" ? 3 : 8;
    group.span = [Math.min(group.start, group.end) - half, Math.max(group.start, group.end) + half];
  }

  // `room` is what there is up to the next mark that looks the same.
  mark(group, chosen) {
    const { x, marks, room, end, span } = group;
    const [mark] = marks;
    const [top, foot] = span;
    const isWrong = mark.healed || mark.kind !== "hop";
    const kind = mark.kind === "hop" && mark.fault >= 0 ? "hop-fault" : mark.kind;
    const count = marks.length > 1 && room > 40;
    return html`
      <g class=${isWrong ? "dw-mark dw-mark-wrong" : "dw-mark"} data-kind=${kind} data-at=${marks.flatMap((each) => this.faultsAt(each)).join(" ")}>
        ${mark.kind === "hop" ? hopShape(group) : faultShape(mark.kind, x, end)}
        ${mark.kind === "refused" && this.refusedWords(x, end)}
        ${count && html`<text class="dw-mark-count" x=${x + 7} y=${(top + foot) / 2 + 4}>×${marks.length}</text>`}
        ${marks.includes(chosen) && html`<rect class="dw-chosen" x=${x - 9} y=${top - 4} width="18" height=${foot - top + 8} rx="6" />`}
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

  ticks() {
    const { lanes, view } = this.state;
    const { line } = lanes;
    const [first, last] = view.map(line.placeOf);
    const lengths = line.parts.map(({ from, to, isNarrow }) => (isNarrow ? 0 : Math.max(0, Math.min(to, last) - Math.max(from, first))));
    const seen = lengths.reduce((sum, length) => sum + length, 0);
    const step = roundStep(Math.max(seen, (last - first) * 0.05, 1e-12) / Math.max(2, this.room / 140));
    const isHidden = (place) => line.parts.some(({ from, to, isNarrow }) => isNarrow && place > from && place < to);
    const texts = [];
    let free = -Infinity;
    for (let place = Math.ceil(first / step) * step, n = 0; place <= last && n < 500; place += step, n++) {
      const x = this.xOf(line.at(place));
      const text = this.tickWords(place, step);
      const half = (text.length * LETTER) / 2;
      if (!text || x - half < free || x + half > this.right + RIGHT || isHidden(place)) continue;
      free = x + half + 8;
      texts.push(html`<text class="dw-tick" x=${x} y=${this.foot + 15} text-anchor="middle">${text}</text>`);
    }
    return texts;
  }

  tickWords(place, step) {
    if (this.isTimed) return secondWords(place);
    return step < 1 ? "" : String(Math.round(place));
  }

  // -- the mouse and the keyboard

  // A plain wheel scrolls the page.
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(event.deltaY / 300), this.atOf(event));
  }

  atOf(event, [first, last] = this.state.view) {
    const x = event.clientX - this.drawing.current.getBoundingClientRect().left;
    return first + ((x - LEFT) / this.room) * (last - first);
  }

  // Drag over the lanes to see that part; a click leads on.
  async press(event) {
    if (event.button) return;
    const start = this.atOf(event);
    const isClick = (moved) => Math.abs(moved.clientX - event.clientX) < CLICK;
    const selected = (moved) => [start, this.atOf(moved)].sort(ascending);
    const last = await this.drag(event, (moved) => this.setState({ area: isClick(moved) ? null : selected(moved).map(this.xOf) }));
    this.setState({ area: null });
    if (isClick(last)) this.follow(this.hit(last));
    else this.look(...selected(last));
  }

  // Move what is seen, or one of its ends.
  brushDown(event) {
    const at = this.atOf(event, WHOLE);
    const [first, last] = this.seen;
    const near = 8 / this.room;
    const end = brushEnd(at, first, last, near);
    this.drag(event, (moved) => {
      const now = this.atOf(moved, WHOLE);
      if (end === "both") this.look(first + now - at, last + now - at);
      else if (end === "first") this.look(Math.min(now, last), Math.max(now, last));
      else if (end === "last") this.look(Math.min(first, now), Math.max(first, now));
      else if (Math.abs(now - at) > near) this.look(Math.min(at, now), Math.max(at, now));
    });
  }

  // -> Promise of the event that ends it.
  drag(event, moved) {
    const target = event.currentTarget;
    const over = new AbortController();
    target.setPointerCapture(event.pointerId);
    target.addEventListener("pointermove", moved, over);
    return new Promise((go) => {
      const end = (last) => {
        over.abort();
        go(last);
      };
      for (const kind of ["pointerup", "pointercancel"]) target.addEventListener(kind, end, over);
    });
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
      Enter: () => this.follow(this.state.lanes.marks[this.state.chosen]),
      Escape: () => this.choose(-1),
    };
    const act = acts[event.key] ?? acts[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  }

  // To the next mark that can be seen by itself.
  step(by) {
    const { lanes, chosen } = this.state;
    let next = chosen < 0 && by < 0 ? lanes.marks.length : chosen;
    do next += by;
    while (lanes.marks[next]?.joined);
    if (lanes.marks[next]) this.choose(next);
  }

  choose(chosen) {
    if (chosen === this.state.chosen) return;
    const mark = this.state.lanes.marks[chosen];
    this.setState({ chosen, told: null });
    if (!mark) return;
    this.bringIn(mark.at);
    this.setState({}, () => this.tell(mark, { x: this.xOf(mark.at), y: this.rowOf(mark.lane, mark.module) }));
  }

  hover(event) {
    const area = this.drawing.current.getBoundingClientRect();
    this.tell(this.hit(event), { x: event.clientX - area.left, y: event.clientY - area.top });
  }

  // The mark, the box or the empty phase under the pointer; the stem of an arrow counts over its whole length.
  hit(event) {
    const area = this.drawing.current.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const near = this.groups.filter(({ x: middle, span: [top, foot] }) => Math.abs(middle - x) < 7 && y > top - 4 && y < foot + 4);
    if (near.length) return near.reduce((one, other) => (Math.abs(other.x - x) < Math.abs(one.x - x) ? other : one)).marks;
    const at = this.atOf(event);
    const box = this.boxAt(at, x, y);
    if (box !== undefined) return { kind: "box", box };
    const { bands, line } = this.state.lanes;
    const band = bands.find(([, start, stop, empty]) => empty && at >= line.at(start) && at <= line.at(stop));
    return band ? { kind: "band", words: band[3] } : null;
  }

  boxAt(at, x, y) {
    for (const { lane, level, boxes } of this.state.lanes.rows) {
      const top = this.tops.get(lane) + level * LINE;
      if (y < top || y > top + BOX) continue;
      const found = boxes[firstAfter(boxes, at)];
      if (found && this.xOf(found.start) <= Math.max(x, LEFT)) return found.box;
    }
    return undefined;
  }

  follow(found) {
    const marks = [found].flat().filter(Boolean);
    this.tell(null); // it would stay over what it leads to
    if (!marks.length) return;
    if (marks.length > 1) return this.spread(marks);
    const [mark] = marks;
    const { spec } = this.state;
    const [path] = (mark.kind === "box" ? this.moduleOf(mark.box) : spec.modules[mark.module]) ?? [];
    const finding = mark.fault >= 0 ? spec.crosses[mark.fault][3] : mark.finding;
    if (finding >= 0) this.props.clicked({ finding });
    else if (mark.hop >= 0) this.props.clicked({ hop: mark.hop });
    else if (path !== undefined) this.props.clicked({ path });
  }

  // Several marks in one: nearer, so that they come apart; those at one place lead on.
  spread(marks) {
    const [first, last] = [marks[0].at, marks[marks.length - 1].at];
    if (last - first < 4 * SMALLEST) return this.follow(marks[0]);
    this.look(first - (last - first) * 0.2, last + (last - first) * 0.2);
  }

  // -- the tip

  tell(found, place) {
    if (found || this.state.told) this.setState({ told: found && { found, place } });
  }

  placeTip() {
    const { told, width } = this.state;
    if (!told) return;
    const tip = this.tip.current;
    const room = width - tip.offsetWidth - 4;
    tip.style.left = `${Math.max(0, Math.min(room, told.place.x + 14))}px`;
    tip.style.top = `${told.place.y + OVERVIEW + 22}px`;
  }

  words(found) {
    const [mark, ...others] = [found].flat();
    if (mark.kind === "band") return mark.words.map((line) => html`<div>${prose(line)}</div>`);
    if (mark.kind === "box") return this.boxWords(mark.box);
    const more = others.length > 0 && html`<div class="dw-soft">${say("{count} here; click to separate them", { count: others.length + 1 })}</div>`;
    if (mark.kind === "hop") return html`${this.hopWords(mark)}${more}`;
    return html`<div><b>${prose(mark.words)}</b></div>${this.moduleWords(mark.module)}${more}`;
  }

  boxWords(box) {
    const { spec } = this.state;
    const [path, kind] = this.moduleOf(box);
    const facts = spec.facts[box] ?? spec.lanes[spec.lane[box]];
    return html`<div><b>${path || say("the model itself")}</b> ${kind}</div><div class="dw-soft">${prose(facts)}</div>`;
  }

  hopWords({ source, lane, bytes, count, hop, module, healed, fault }) {
    const { spec } = this.state;
    const line = this.props.hops[hop];
    const about = [bytes, count > 1 && sayCount("{count} hop", "{count} hops", count), healed && say("moved by devwidget")];
    return html`
      <div><b>${spec.lanes[source]} → ${spec.lanes[lane]}</b> ${about.filter(Boolean).join(", ")}</div>
      ${fault >= 0 && html`<div>${prose(spec.crosses[fault][2])}</div>`}
      ${this.moduleWords(module)}
      ${line && html`<div class="dw-soft">${[line.what, line.seconds, line.place].filter(Boolean).join("  ")} ${line.code && html`<code>${line.code}</code>`}</div>`}
    `;
  }

  moduleWords(module) {
    const [path, kind] = this.state.spec.modules[module] ?? [];
    return path !== undefined && html`<div class="dw-soft">${path || say("the model itself")} ${kind}</div>`;
  }
}

const largestOf = (marks) => marks.reduce((one, other) => (other.weight > one.weight ? other : one));
const widthOf = ({ weight }) => 1.5 + 4.5 * weight; // pixels, of the stem

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

// What a press on the overview takes hold of: an end of what is seen, all of it, or a new part.
function brushEnd(at, first, last, near) {
  if (Math.abs(at - first) < near) return "first";
  if (Math.abs(at - last) < near) return "last";
  return at > first && at < last && last - first < 1 ? "both" : "new";
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
