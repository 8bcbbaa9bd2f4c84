// The header: what the model is, on which devices; the inputs and the button; the status line; the menu.
import { h, hueOf } from "./dom.js";
import { saveBlob } from "./pictures.js";
import { say, word } from "./words.js";

let lists = 0;

// One row: what the model is, where its bytes are, and how full each GPU is.
export function headline(head, meters, filterBy) {
  const dtype = (name) => h("button", { class: "dw-only-dtype", type: "button", title: say("show rows with {dtype}", { dtype: name }), onclick: () => filterBy(`dtype:${name}`) }, name);
  const virtual = head.virtual ? h("span", { class: "dw-virtual", title: say("simulated on the CPU: results are real, speed is not") }, say("virtual GPUs: {count}", { count: head.virtual })) : "";
  const facts = [head.parameters, head.bytes, virtual].filter(Boolean).map((fact) => h("span", null, fact));
  const metered = new Map(meters.map((each) => [each.device, each]));
  const others = meters.filter(({ device }) => !head.devices.some(([name]) => name === device)).map(({ device }) => [device, ""]);
  const devices = [...head.devices, ...others].map(([name, size]) => meter(name, size, metered.get(name), () => filterBy(`device:${name}`)));
  return [h("strong", { class: "dw-title", title: head.title }, head.title), ...head.dtypes.map(dtype), h("span", { class: "dw-facts dw-soft" }, facts), h("span", { class: "dw-chips" }, devices)];
}

// A device: its name, the model's bytes on it, and, of a GPU, how full it is: in use, up to the last peak, and what was refused.
function meter(device, size, facts, onclick) {
  const percent = (share) => `width:${(100 * Math.min(1, share)).toFixed(1)}%`;
  const bar = facts && h("span", { class: "dw-meter-bar", role: "img", "aria-label": facts.words }, h("i", { class: "dw-meter-peak", style: percent(facts.peak) }), h("i", { class: "dw-meter-used", style: percent(facts.used) }), facts.refused ? h("i", { class: "dw-meter-refused" }) : "");
  const title = [say("show rows on {device}", { device }), facts?.words].filter(Boolean).join("\n");
  return h("button", { class: `dw-meter${device === "meta" ? " dw-meta" : ""}`, type: "button", "data-device": device, style: `--dw-hue:${hueOf(device)}`, title, onclick }, h("span", { class: "dw-dot", "aria-hidden": "true" }), h("span", { class: "dw-meter-name" }, device), bar, h("span", { class: "dw-meter-words" }, facts ? [facts.short, h("span", { class: "dw-meter-total" }, " ", facts.total)] : size));
}

export class Inputs {
  constructor(act) {
    const list = `dw-names-${lists++}`;
    const field = (name, input) => h("label", { class: `dw-field dw-field-${name}` }, h("span", null, say(name)), input);
    const input = (hint, more) => h("input", { class: "dw-input", type: "text", placeholder: hint, spellcheck: "false", autocomplete: "off", ...more });
    this.batch = input(say("variable or next(iter(loader))"), { list, "aria-label": say("batch") });
    this.loss = input("loss_fn");
    this.target = input("labels");
    this.names = h("datalist", { id: list });
    this.heal = h("input", { type: "checkbox", checked: true });
    this.button = h("button", { class: "dw-primary", type: "submit" }, say("Trace batch"));
    this.cancel = h("button", { class: "dw-plain", type: "button", hidden: true, onclick: act.cancel }, say("Cancel"));
    this.el = h(
      "form",
      { class: "dw-inputs", "aria-label": say("trace one batch") },
      field(word("batch"), this.batch),
      this.names,
      field(word("loss"), this.loss),
      field(word("target"), this.target),
      h("label", { class: "dw-check", title: say("Moves misplaced tensors and continues, so that one run finds every fault.") }, this.heal, say("keep going past device errors")),
      this.button,
      this.cancel,
    );
    this.el.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.button.disabled) act.trace(this.read());
    });
    this.ended = false;
    this.touched = new Set();
    for (const name of ["batch", "loss", "target", "heal"]) this[name].addEventListener("input", () => this.touched.add(name));
  }

  read() {
    return { batch: this.batch.value, loss: this.loss.value, target: this.target.value, heal: this.heal.checked };
  }

  // Suggestions from Python; typed text stays.
  offer(inputs) {
    this.names.replaceChildren(...(inputs.names ?? []).map((name) => h("option", { value: name })));
    for (const name of ["batch", "loss", "target"]) if (!this.touched.has(name)) this[name].value = inputs[name] ?? "";
    if (!this.touched.has("heal")) this.heal.checked = inputs.heal ?? true;
    if (!this.touched.has("batch") && !this.batch.value && inputs.names?.length) this.batch.value = inputs.names[0];
  }

  busy(running) {
    this.button.disabled = running || this.ended;
    this.cancel.hidden = !running;
  }

  // Nothing can be traced any more, or again.
  end(ended) {
    this.ended = ended;
    for (const field of this.el.querySelectorAll("input, button")) field.disabled = ended;
  }
}

const PICTURES = [
  ["png", word("Save figure as PNG")],
  ["svg", word("Save figure as SVG")],
];
const FILES = [
  ["side", word("Open in the side bar")],
  ["text", word("Copy text report")],
  ["html", word("Save as HTML")],
  ["json", word("Save snapshot as JSON")],
  ["trace", word("Save trace as JSON")],
  ["csv", word("Save tensors as CSV")],
];

// `write(form)` asks Python for a file; without it there are only the pictures, which the page makes itself.
export function menu(draw, write) {
  const box = h("details", { class: "dw-menu" });
  const pick = (form) => (form === "png" || form === "svg" ? draw(form) : write(form));
  const entries = [...(write ? FILES : []), ...PICTURES].map(([form, text]) =>
    h("button", { type: "button", class: "dw-entry", onclick: () => { box.open = false; pick(form); } }, say(text)),
  );
  box.append(h("summary", { "aria-label": say("Export"), title: say("Export") }, "⋯"), h("div", { class: "dw-entries" }, entries));
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !box.open) return;
    box.open = false;
    box.firstChild.focus();
    event.stopPropagation();
  });
  box.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !box.contains(event.relatedTarget)) box.open = false;
  });
  return box;
}

export function save(answer, copied) {
  if (answer.mime === "text/plain") {
    navigator.clipboard.writeText(answer.text).then(() => copied(say("report copied")), (error) => copied(say("cannot copy: {error}", { error: error.message })));
    return;
  }
  saveBlob(new Blob([answer.text], { type: answer.mime }), answer.name);
  copied(say("saved {file}", { file: answer.name }));
}
