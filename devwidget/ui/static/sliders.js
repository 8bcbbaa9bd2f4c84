import { h, hueOf } from "./dom.js";
import { GIB, MIB, sizeWords, weights } from "./knots.js";
import { say, spoken } from "./words.js";

export function estimate(content, batch, length) {
  const rows = weights(content.batches, batch, content.knots[0]);
  const columns = weights(content.lengths, length, content.knots[1]);
  const one = (taken) => rows.reduce((sum, [r, a]) => sum + columns.reduce((part, [c, b]) => part + taken[r * content.lengths.length + c] * a * b, 0), 0);
  return content.gpus.map((gpu) => Math.round(one(gpu.taken)));
}

function slider(label, least, most, value, words, changed) {
  const input = h("input", { type: "range", min: String(least), max: String(most), step: "1", value: String(value), "aria-label": label });
  const output = h("output", null);
  const show = () => {
    output.textContent = words(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    show();
    changed();
  });
  show();
  return { el: h("label", { class: "dw-slider" }, h("span", null, label), input, output), get: () => Number(input.value) };
}

function bar(gpu, taken, capacity) {
  const reach = Math.max(taken, capacity);
  const fits = taken <= capacity;
  const facts = { taken: sizeWords(taken), capacity: sizeWords(capacity), over: sizeWords(taken - capacity) };
  const words = fits ? say("{taken} of {capacity}, fits", facts) : say("{taken} of {capacity}, {over} too much", facts);
  return h(
    "div",
    { class: `dw-taken${fits ? "" : " dw-over"}`, "data-device": gpu.device },
    h("b", null, gpu.device),
    h(
      "span",
      { class: "dw-taken-bar", style: `--dw-hue:${hueOf(gpu.device)}`, "aria-hidden": "true" },
      h("i", { style: `width:${((100 * taken) / reach).toFixed(2)}%` }),
      h("s", { style: `left:${((100 * capacity) / reach).toFixed(2)}%` }),
    ),
    h("span", { class: "dw-taken-words" }, words),
  );
}

export function slidersView(content) {
  const [batch, length] = content.asked;
  const last = (knots) => knots[knots.length - 1];
  const samples = slider(say("batch"), content.batches[0], last(content.batches), batch, String, draw);
  const several = content.lengths.length > 1;
  const tokens = several ? slider(say("length of texts"), content.lengths[0], last(content.lengths), length, String, draw) : null;
  const own = Math.max(...content.gpus.map((gpu) => gpu.capacity));
  const unit = own < 4 * GIB ? MIB : GIB;
  const memory = slider(say("memory of each GPU"), 1, Math.max(Math.ceil((2 * own) / unit), 2), Math.round(own / unit), (value) => sizeWords(value * unit), draw);
  const bars = h("div", { role: "status" });
  const source = h("p", { class: "dw-soft" });
  let touched = false;
  function draw() {
    const at = [samples.get(), tokens ? tokens.get() : content.lengths[0]];
    const capacity = memory.get() * unit;
    touched ||= capacity !== Math.round(own / unit) * unit;
    const taken = estimate(content, at[0], at[1]);
    bars.replaceChildren(...content.gpus.map((gpu, index) => bar(gpu, taken[index], touched ? capacity : gpu.capacity)));
    const isRun = content.batches.includes(at[0]) && content.lengths.includes(at[1]);
    source.textContent = isRun ? say("This size was run.") : say("Estimated between sizes that were run.");
  }
  draw();
  return h("section", { class: "dw dw-sliders" }, h("h4", null, content.title), samples.el, tokens?.el, memory.el, bars, source, h("p", { class: "dw-soft" }, content.words));
}

async function render({ model, el, signal }) {
  const draw = () => el.replaceChildren(slidersView(model.get("content")));
  draw();
  model.on("change:content", draw);
  signal.addEventListener("abort", () => model.off("change:content", draw));
}

export default { render: spoken(render) };
