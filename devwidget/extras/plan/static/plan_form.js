// The form of a plan's page: its sliders stand on sizes, and those that were run are their ticks.
import { h } from "../../../panel/static/dom.js";
import { say } from "../../../panel/static/words.js";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
let lists = 0;

// `3.00 GiB`, three digits as everywhere.
function sizeWords(bytes) {
  const unit = bytes < GIB ? MIB : GIB;
  const number = bytes / unit;
  return `${number.toFixed(number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2)} ${unit === MIB ? "MiB" : "GiB"}`;
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
  const ticks = h("datalist", { id: list }, stops.map((stop, index) => run.includes(stop) && h("option", { value: String(index) })));
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
    const { shown, run } = form;
    const count = (value) => value.toLocaleString("en");
    this.batch = form.batches.length ? slider(say("batch"), form.batches, shown.batch, run.batch, count, this.act) : null;
    this.length = form.lengths.length ? slider(say("length"), form.lengths, shown.length, run.length, count, this.act) : null;
    const card = (name) => h("option", { value: name, selected: name === shown.card }, name || say("by memory alone"));
    const none = form.memory.length || !shown.card ? [""] : [];
    this.card = h("select", { class: "dw-input", "aria-label": say("card"), onchange: this.act.chosen }, [...none, ...form.cards].map(card));
    this.card.addEventListener("change", () => this.hold());
    this.memory = form.memory.length ? slider(say("memory"), form.memory, shown.memory[0] ?? form.own, [], sizeWords, this.act) : null;
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
