// The form of a plan's page: its sliders stand on sizes, and those that were run are their ticks.
import { useState } from "preact/hooks";
import { html, newId } from "../../../panel/static/base.js";
import { say } from "../../../panel/static/words.js";

// A slider over stops, each with its words; those that were run are its ticks. `moved(value)` is called while it moves, `chosen()` when
// it stands.
function Slider({ label, stops, value, run = [], moved, chosen, hidden, disabled }) {
  const [list] = useState(newId("run"));
  const at = Math.max(stops.findIndex(([stop]) => stop === value), 0);
  const tick = ([stop], index) => run.includes(stop) && html`<option value=${index} />`;
  return html`
    <label class="dw-knob" hidden=${hidden}>
      <span>${label}</span>
      <input
        type="range" min="0" max=${stops.length - 1} step="1" value=${at} list=${list} aria-label=${label} aria-valuetext=${stops[at][1]}
        disabled=${disabled} oninput=${(event) => moved(stops[Number(event.target.value)][0])} onchange=${chosen}
      />
      <datalist id=${list}>${stops.map(tick)}</datalist>
      <output>${stops[at][1]}</output>
    </label>
  `;
}

// What a form says: `shown` is what Python shows, `draft` what was moved since.
export function settingOf({ shown, memory, gpus, own }, draft) {
  const { batch, length, card, memory: perGpu } = { ...shown, memory: shown.memory[0] ?? own, ...draft };
  if (card) return { batch, length, card, memory: [] }; // a card has its own memory
  return { batch, length, card, memory: memory.length ? Array(gpus).fill(perGpu) : shown.memory };
}

// `draft` is a signal; `chosen` is called when something stands.
export function PlanForm({ form, draft, chosen, isOver }) {
  const { shown, run, batches, lengths, memory, cards, own } = form;
  const values = { ...shown, memory: shown.memory[0] ?? own, ...draft.value };
  const set = (name, value) => (draft.value = { ...draft.value, [name]: value });
  const slider = (name, label, stops) => stops.length > 0 && html`
    <${Slider}
      label=${label} stops=${stops} value=${values[name]} run=${run[name]} disabled=${isOver} chosen=${chosen}
      moved=${(value) => set(name, value)} hidden=${name === "memory" && Boolean(values.card)}
    />
  `;
  const none = memory.length || !shown.card ? [""] : [];
  const pick = (event) => {
    set("card", event.target.value);
    chosen();
  };
  const option = (name) => html`<option value=${name} selected=${name === values.card}>${name || say("by memory alone")}</option>`;
  return html`
    <div class="dw-form dw-knobs" role="group" aria-label=${say("what is planned")}>
      ${slider("batch", say("batch"), batches)}
      ${slider("length", say("length"), lengths)}
      <label class="dw-field">
        <span>${say("card")}</span>
        <select class="dw-input" aria-label=${say("card")} disabled=${isOver} onchange=${pick}>${[...none, ...cards].map(option)}</select>
      </label>
      ${slider("memory", say("memory"), memory)}
    </div>
  `;
}
