// The timeline: what is seen of the rows of `report/figures/timeline.py` is a figure of plotly, with an overview below it.
// Of 10,000 boxes plotly would draw each; here those too narrow to tell apart are one.
import { createRef } from "preact";
import { Callable, html } from "./base.js";
import { say } from "./words.js";

const [LEFT, RIGHT] = [76, 8]; // pixels beside the lanes, as the figure has them
const [LETTER, LINE] = [6.4, 14]; // pixels
const SMALLEST = 1e-5; // share of the whole that is seen at the deepest zoom
const [TICKS, APART] = [5, 0.09]; // about so many, each this share of the lanes from the last
/** @type {[number, number]} */
const WHOLE = [0, 1];

// `reveal` is called with what a mark leads to: { path }, { hop } or { finding }.
export class Timeline extends Callable {
  el = createRef();

  // `view` is what is seen, from 0 to 1; `spot` a place to point at, by order and by time.
  static getDerivedStateFromProps({ drawn }, before) {
    if (drawn === before.drawn) return null;
    const whole = { drawn, name: "order", view: WHOLE, spot: null };
    return { ...whole, spec: drawn && figureOf(whole) };
  }

  // `change(state)` is what differs.
  show(change) {
    this.setState((state) => {
      const next = { ...state, ...change(state) };
      return { ...next, spec: figureOf(next) };
    });
  }

  turn() {
    this.show(({ name }) => ({ name: name === "time" ? "order" : "time", view: WHOLE }));
  }

  // Point at a place, where it is by order and by time, and have it in sight.
  point(spot) {
    this.show((state) => {
      const [first, last] = state.view;
      const at = placeOf({ ...state, spot });
      const half = (last - first) / 2;
      return { spot, view: at < first || at > last ? within(at - half, at + half) : [first, last] };
    });
    this.el.current.scrollIntoView({ block: "nearest" });
  }

  look(first, last) {
    this.show(() => ({ view: within(first, last) }));
  }

  // Around a share of what is seen.
  zoom(factor, share = 0.5) {
    this.show(({ view: [first, last] }) => {
      const around = first + share * (last - first);
      return { view: within(around - (around - first) * factor, around + (last - around) * factor) };
    });
  }

  move(by) {
    this.show(({ view: [first, last] }) => ({ view: within(first + by * (last - first), last + by * (last - first)) }));
  }

  // A plain wheel scrolls the page.
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const { left, width } = this.el.current.getBoundingClientRect();
    this.zoom(Math.exp(event.deltaY / 300), (event.clientX - left - LEFT) / (width - LEFT - RIGHT));
  }

  key(event) {
    const acts = {
      w: () => this.zoom(0.5),
      s: () => this.zoom(2),
      a: () => this.move(-0.25),
      d: () => this.move(0.25),
      0: () => this.look(...WHOLE),
    };
    const act = acts[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  }

  // Several in one come apart, one leads on.
  follow([, target, range]) {
    if (range) this.look(...range);
    else this.props.reveal(target);
  }

  render({ drawn, figure }, { name, spec }) {
    if (!drawn) return "";
    const button = (text, label, act) => html`<button class="dw-button dw-zoom" aria-label=${label} title=${label} onclick=${act}>${text}</button>`;
    const label = `${drawn.words}. ${say("W and S zoom, A and D move, 0 shows the whole step.")}`;
    const more = drawn.left_out > 0 && say("nested calls not drawn: {count}", { count: drawn.left_out });
    return html`
      <div class="dw-timeline-bar">
        <span class="dw-soft dw-seen">${[spec.range, more].filter(Boolean).join("; ")}</span>
        <button
          class="dw-button dw-axis" hidden=${!drawn.axes.time} title=${say("Switches between CPU time and the order of events.")}
          onclick=${() => this.turn()}
        >${name === "time" ? say("by order") : say("by time")}</button>
        ${button("+", say("zoom in"), () => this.zoom(0.5))}
        ${button("−", say("zoom out"), () => this.zoom(2))}
        ${button(say("fit"), say("the whole step"), () => this.look(...WHOLE))}
      </div>
      <div
        ref=${this.el} class="dw-lanes" tabindex="0" role="group" aria-label=${label} onkeydown=${(event) => this.key(event)}
        onwheel=${(event) => this.wheel(event)}
      >${figure("timeline", spec, (facts) => this.follow(facts), (first, last) => this.look(first, last))}</div>
    `;
  }
}

/** @returns {[number, number]} */
function within(first, last) {
  const width = Math.min(1, Math.max(SMALLEST, last - first));
  const start = Math.min(1 - width, Math.max(0, first));
  return [start, start + width];
}

// From one scale to another, which bend at the same edges.
function between(value, from, to) {
  const found = from.findIndex((edge, n) => n && value <= edge);
  const n = found < 0 ? from.length - 1 : found;
  const share = (value - from[n - 1]) / (from[n] - from[n - 1]);
  return to[n - 1] + Math.min(1, Math.max(0, share)) * (to[n] - to[n - 1]);
}

// The multiples of 1, 2 or 5 times a power of ten in a range, about TICKS of them and at least `least` apart.
function roundNumbers(first, last, least) {
  const rough = Math.max((last - first) / TICKS, least);
  const tens = 10 ** Math.floor(Math.log10(rough));
  const step = tens * ([1, 2, 5].find((each) => each * tens >= 0.999 * rough) ?? 10);
  const begin = Math.ceil(first / step);
  return Array.from({ length: Math.floor(last / step) - begin + 1 }, (_, n) => (begin + n) * step);
}

// An empty phase is short: of the places in it, those far enough from the one before.
function farApart(places, least) {
  const found = [];
  for (const place of places) if (!found.length || place - found.at(-1) > least) found.push(place);
  return found;
}

function placeOf({ drawn, name, spot }) {
  const { places, knots } = drawn.axes[name];
  return between(spot[name === "time" ? 1 : 0], places, knots);
}

// What is seen, as a figure of plotly for a page of any width.
function figureOf(state) {
  const { drawn, name, view, spot } = state;
  const { words, layout, rows } = drawn;
  const { places, knots, bands, grounds } = drawn.axes[name];
  const isTimed = name === "time";
  const valueAt = (at) => between(at, knots, places);
  const wordsAt = (at) => (isTimed ? secondWords(valueAt(at)) : String(Math.round(valueAt(at))));
  const [from, to, whole] = [...view, 1].map(wordsAt);
  const facts = { from, to, whole };
  const range = isTimed ? say("CPU time, {from} to {to} of {whole}", facts) : say("order of events, {from} to {to} of {whole}", facts);
  const numbers = roundNumbers(valueAt(view[0]), valueAt(view[1]), isTimed ? 0 : 1);
  const tickvals = farApart(numbers.map((number) => between(number, places, knots)), APART * (view[1] - view[0]));
  const xaxis = { ...layout.xaxis, range: view, tickvals, ticktext: tickvals.map(wordsAt) };
  const shapes = spot ? [...grounds, { ...layout.pointer, x0: placeOf(state), x1: placeOf(state) }] : grounds;

  function at(width) {
    const strip = 1 / (width - LEFT - RIGHT); // a pixel of the overview, which has all of a row; the lanes have what is seen
    const pixel = (view[1] - view[0]) * strip;
    const annotations = bands.flatMap((band) => titles(band, view, pixel));
    const of = (row) => (trace) => (trace.meta ? placed(trace, row, name, WHOLE, strip) : placed(trace, row, name, view, pixel));
    return { data: rows.flatMap((row) => row.traces.map(of(row))), layout: { ...layout, xaxis, shapes, annotations } };
  }

  return { words, layout, range, at };
}

// What is in a range, from left to right; those that are narrow, and near the one before, are one with it.
function seenOf({ near, ...row }, name, [first, last], pixel) {
  const seen = [];
  let free = -Infinity;
  row[name].forEach(([start, stop], at) => {
    if (stop < first || start > last) return;
    if (start < free && stop - start < near * pixel) {
      const before = seen[seen.length - 1];
      before.count += 1;
      before.end = stop;
      return;
    }
    seen.push({ at, start: Math.max(start, first), stop: Math.min(stop, last), end: stop, count: 1 });
    free = start + near * pixel;
  });
  return seen;
}

// One trace with what is seen: boxes from `base` to the right, arrows as wide as they are in pixels, marks.
function placed({ y, ...trace }, row, name, view, pixel) {
  const { facts, names, wide } = row;
  const seen = seenOf(row, name, view, pixel);
  const starts = seen.map(({ start }) => start);
  const own = { ...trace, y: seen.map(() => y), customdata: seen.map((each) => factsAt(each, facts)) };
  if (trace.type !== "bar") return { ...own, x: starts };
  if (trace.orientation === "v") return { ...own, x: starts, width: seen.map(({ at }) => wide[at] * pixel) };
  const lengths = seen.map(({ start, stop }) => Math.max(stop - start, pixel));
  const text = seen.map(({ at, count }, n) => (count > 1 || trace.meta ? "" : cutTo(names[at], lengths[n] / pixel)));
  return { ...own, base: starts, x: lengths, text };
}

// What one says, and leads to; of several in one the first, and where they come apart.
function factsAt({ at, start, end, count }, facts) {
  if (count === 1) return facts[at];
  const more = say("{count} here; click to separate them", { count });
  return [`${facts[at][0]}<br>${more}`, null, [start - 0.2 * (end - start), end + 0.2 * (end - start)]];
}

// The name of a phase, and what is in an empty one, where there is room.
function titles([name, words, start, stop], [first, last], pixel) {
  const [left, right] = [Math.max(first, start), Math.min(last, stop)];
  const room = (right - left) / pixel;
  const title = { yref: "paper", y: 1, showarrow: false, font: { size: 11 } };
  const shown = room > name.length * LETTER ? [{ ...title, x: left, text: name, xanchor: "left", yanchor: "bottom" }] : [];
  if (!words.length || room < LINE) return shown;
  const longest = Math.max(...words.map((line) => line.length));
  const turned = room > longest * LETTER ? { text: words.join("<br>") } : { text: words.join(", "), textangle: -90 };
  return [...shown, { ...title, x: (left + right) / 2, yanchor: "top", ...turned }];
}

function secondWords(seconds) {
  if (!seconds) return "0";
  const [unit, size] = seconds >= 1 ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e-3] : ["µs", 1e-6];
  return `${Number((seconds / size).toPrecision(3))} ${unit}`;
}

// As much of a text as there is room for, behind a mark; "" if that is not worth reading.
function cutTo(text, width) {
  const most = Math.floor((width - 14) / LETTER);
  if (text.length <= most) return `\u00a0\u00a0${text}`;
  return most > 3 ? `\u00a0\u00a0${text.slice(0, most - 1)}…` : "";
}
