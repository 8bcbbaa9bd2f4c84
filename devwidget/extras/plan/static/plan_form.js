// The form of a plan's page: what its sliders stand on, and what the plans that were run say of that at once.
import { h } from "../../../panel/static/dom.js";
import { sizeWords, weights } from "./knots.js";
import { say, word } from "../../../panel/static/words.js";

const FITS = { fits: word("fits"), close: word("fits, closely"), over: word("does not fit") };
let lists = 0;

const isSame = (one, other) => one.batch === other.batch && one.length === other.length && one.card === other.card;
const hasMemory = (one, other) => one.memory.length === other.memory.length && one.memory.every((size, at) => size === other.memory[at]);

function nameFit(taken, most, capacity) {
  if (taken > capacity) return "over";
  return most > capacity ? "close" : "fits";
}

// What was run with just this setting; without a card what is taken does not depend on the memory, unless a map does.
function findRun(form, setting) {
  const run = form.figures.find((figure) => isSame(figure, setting) && hasMemory(figure, setting));
  if (run || setting.card || form.maps) return run;
  const other = form.figures.find((figure) => isSame(figure, setting));
  return other && { ...other, capacity: setting.memory[0], fit: nameFit(other.taken, other.taken * form.band, setting.memory[0]) };
}

// Between the nearest sizes, along lines with the batch, and as a square with the length of texts.
function along(points, at, most) {
  const knots = [...points.keys()].sort((a, b) => a - b);
  if (points.has(at)) return points.get(at);
  if (knots.length < 2) return undefined;
  return weights(knots, at, Math.min(most, knots.length)).reduce((sum, [n, weight]) => sum + weight * points.get(knots[n]), 0);
}

function estimateRun(form, setting) {
  const near = form.figures.filter((figure) => figure.card === setting.card && (setting.card || !form.maps || hasMemory(figure, setting)));
  if (!near.length) return undefined;
  const lengths = new Map();
  for (const length of new Set(near.map((figure) => figure.length))) {
    const batches = new Map(near.filter((figure) => figure.length === length).map((figure) => [figure.batch, figure.taken]));
    const taken = along(batches, setting.batch, 2);
    if (taken !== undefined) lengths.set(length, taken);
  }
  const taken = along(lengths, setting.length, 3);
  const capacity = setting.card ? near[0].capacity : setting.memory[0];
  return taken > 0 ? { taken, capacity, fit: nameFit(taken, taken * form.band, capacity) } : undefined;
}

// The answer that needs no kernel.
export function answerAtOnce(form, setting) {
  const run = findRun(form, setting);
  const found = run ?? estimateRun(form, setting);
  if (!found) return { fit: "", words: say("Not planned yet"), more: say("no plan near it was run") };
  const facts = { taken: sizeWords(found.taken), capacity: sizeWords(found.capacity), answer: say(FITS[found.fit]) };
  if (run) return { fit: found.fit, words: say("{taken} of {capacity}: {answer}", facts), more: say("this size was planned") };
  return { fit: found.fit, words: say("About {taken} of {capacity}: {answer}", facts), more: say("estimated between plans that were run") };
}

// A slider over stops; those that were run are its ticks.
function slider(label, stops, value, run, words, act) {
  const list = `dw-run-${lists++}`;
  const at = Math.max(stops.indexOf(value), 0);
  const input = h("input", { type: "range", min: "0", max: String(stops.length - 1), step: "1", value: String(at), list, "aria-label": label });
  const output = h("output", null);
  const get = () => stops[Number(input.value)];
  const show = () => {
    output.textContent = words(get());
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    show();
    act.moved();
  });
  input.addEventListener("change", act.chosen);
  show();
  const ticks = h("datalist", { id: list }, stops.map((stop, index) => run.has(stop) && h("option", { value: String(index) })));
  return { el: h("label", { class: "dw-knob" }, h("span", null, label), input, ticks, output), get };
}

export class PlanForm {
  // `act.moved` is called while a slider moves, `act.chosen` when it stands.
  constructor(act) {
    this.act = act;
    this.el = h("div", { class: "dw-form dw-knobs", role: "group", "aria-label": say("what is planned") });
  }

  show(form) {
    this.form = form;
    const { shown, figures } = form;
    const runs = (key) => new Set(figures.map((figure) => figure[key]));
    const count = (value) => value.toLocaleString("en");
    this.batch = form.batches.length ? slider(say("batch"), form.batches, shown.batch, runs("batch"), count, this.act) : null;
    this.length = form.lengths.length ? slider(say("length"), form.lengths, shown.length, runs("length"), count, this.act) : null;
    const card = (name) => h("option", { value: name, selected: name === shown.card }, name || say("by memory alone"));
    const none = form.memory.length || !shown.card ? [""] : [];
    this.card = h("select", { class: "dw-input", "aria-label": say("card"), onchange: this.act.chosen }, [...none, ...form.cards].map(card));
    this.card.addEventListener("change", () => this.hold());
    const own = shown.memory[0] ?? form.memory.find((size) => size === figures[0].capacity) ?? form.memory[Math.floor(form.memory.length / 4)];
    this.memory = form.memory.length ? slider(say("memory"), form.memory, own, new Set(), sizeWords, this.act) : null;
    const focused = this.el.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
    this.el.replaceChildren(...[this.batch?.el, this.length?.el, h("label", { class: "dw-field" }, h("span", null, say("card")), this.card), this.memory?.el].filter(Boolean));
    this.hold();
    if (focused) this.el.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  // A card has its own memory.
  hold() {
    if (this.memory) this.memory.el.hidden = Boolean(this.card.value);
  }

  read() {
    const { shown, gpus } = this.form;
    const card = this.card.value;
    const memory = card ? [] : this.memory ? Array(gpus).fill(this.memory.get()) : shown.memory;
    return { batch: this.batch?.get() ?? shown.batch, length: this.length?.get() ?? shown.length, card, memory };
  }
}
