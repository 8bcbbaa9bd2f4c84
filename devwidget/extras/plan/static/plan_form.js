// The form of a plan's page: its sliders stand on sizes, and those that were run are their ticks.
import { html } from "../../../panel/static/base.js";
import { say } from "../../../panel/static/words.js";

// What a form says: `shown` is what Python shows, `draft` what was moved since.
export function settingOf({ shown, memory, gpus, own }, draft) {
  const { batch, length, card, memory: perGpu } = { ...shown, memory: shown.memory[0] ?? own, ...draft };
  if (card) return { batch, length, card, memory: [] }; // a card has its own memory
  return { batch, length, card, memory: memory.length ? Array(gpus).fill(perGpu) : shown.memory };
}

// `draft` is a signal; `chosen` is called when something stands; ids begin with `id`.
export function PlanForm({ form, draft, chosen, isOver, id }) {
  const { shown, run, batches, lengths, memory, cards, own } = form;
  const values = { ...shown, memory: shown.memory[0] ?? own, ...draft.value };
  const set = (name, value) => (draft.value = { ...draft.value, [name]: value });
  // Over stops, each with its words; those that were run are its ticks.
  const slider = (name, label, stops) => {
    if (!stops.length) return "";
    const at = Math.max(stops.findIndex(([stop]) => stop === values[name]), 0);
    const tick = ([stop], index) => run[name]?.includes(stop) && html`<option value=${index} />`;
    return html`
      <label class="dw-knob" hidden=${name === "memory" && Boolean(values.card)}>
        <span>${label}</span>
        <input
          type="range" min="0" max=${stops.length - 1} step="1" value=${at} list=${`${id}-${name}`} aria-label=${label} aria-valuetext=${stops[at][1]}
          disabled=${isOver} oninput=${(event) => set(name, stops[Number(event.target.value)][0])}
        />
        <datalist id=${`${id}-${name}`}>${stops.map(tick)}</datalist>
        <output>${stops[at][1]}</output>
      </label>
    `;
  };
  const none = memory.length || !shown.card ? [""] : [];
  const pick = (event) => set("card", event.target.value);
  const option = (name) => html`<option value=${name} selected=${name === values.card}>${name || say("by memory alone")}</option>`;
  return html`
    <div class="dw-form dw-knobs" role="group" aria-label=${say("what is planned")} onchange=${chosen}>
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
