// The header: what the model is, on which devices; the inputs and the button; the menu.
import { html } from "./base.js";
import { copyText, Dot, hueOf } from "./parts.js";
import { say, sayCount, word } from "./words.js";

// One row: what the model is, where its bytes are, and how full each GPU is.
export function Headline({ panel }) {
  const { filterBy } = panel;
  const { head } = panel.state;
  if (!head?.title) return html`<div class="dw-headline" />`;
  const { meters = [] } = panel.latest("memory");
  const metered = new Map(meters.map((each) => [each.device, each]));
  const sizes = new Map(head.devices);
  const devices = [...new Set([...sizes.keys(), ...metered.keys()])];
  const dtype = (name) => html`
    <button class="dw-only-dtype" title=${say("show rows with {dtype}", { dtype: name })} onclick=${() => filterBy(`dtype:${name}`)}>${name}</button>
  `;
  const virtual = head.virtual && html`
    <span class="dw-virtual" title=${say("simulated on the CPU: results are real, speed is not")}>${say("virtual GPUs: {count}", { count: head.virtual })}</span>
  `;
  const facts = [head.parameters, head.bytes, virtual].filter(Boolean);
  return html`
    <div class="dw-headline">
      <strong class="dw-title" title=${head.title}>${head.title}</strong>
      ${head.dtypes.map(dtype)}
      <span class="dw-facts dw-soft">${facts.map((fact) => html`<span>${fact}</span>`)}</span>
      <span class="dw-chips">${devices.map((device) => meter(device, sizes.get(device), metered.get(device), filterBy))}</span>
    </div>
  `;
}

const percent = (share) => `width:${(100 * Math.min(1, share)).toFixed(1)}%`;

// A device: its name, the model's bytes on it, and, of a GPU, how full it is: in use, up to the last peak, and what was refused.
function meter(device, size, facts, filterBy) {
  const title = [say("show rows on {device}", { device }), facts?.words].filter(Boolean).join("\n");
  const words = facts ? html`${facts.short}<span class="dw-meter-total"> ${facts.total}</span>` : size;
  return html`
    <button
      class=${`dw-meter${device === "meta" ? " dw-meta" : ""}`} data-device=${device} style=${`--dw-hue:${hueOf(device)}`} title=${title}
      onclick=${() => filterBy(`device:${device}`)}
    ><${Dot} /><span class="dw-meter-name">${device}</span>${facts && meterBar(facts)}<span class="dw-meter-words">${words}</span></button>
  `;
}

function meterBar({ words, peak, used, refused }) {
  return html`
    <span class="dw-meter-bar" role="img" aria-label=${words}>
      <i class="dw-meter-peak" style=${percent(peak)} /><i class="dw-meter-used" style=${percent(used)} />${refused && html`<i class="dw-meter-refused" />`}
    </span>
  `;
}

// What to trace, as `panel.inputs` has it.
export function Inputs({ panel }) {
  const { inputs } = panel;
  const isBusy = panel.isBusy.value;
  const isOver = Boolean(panel.banner.value);
  const type = (name, value) => (panel.typed.value = { ...panel.typed.value, [name]: value });
  const submit = (event) => {
    event.preventDefault();
    if (!panel.isHeld) panel.trace();
  };
  const field = (name, hint, more) => html`
    <label class=${`dw-field dw-field-${name}`}>
      <span>${say(name)}</span>
      <input
        class="dw-input" type="text" placeholder=${hint} spellcheck=${false} autocomplete="off" value=${inputs[name]} disabled=${isOver}
        oninput=${(event) => type(name, event.target.value)} ...${more}
      />
    </label>
  `;
  return html`
    <form class="dw-inputs" aria-label=${say("trace one batch")} hidden=${!panel.hasModel} onsubmit=${submit}>
      ${field(word("batch"), say("variable or next(iter(loader))"), { list: panel.id, "aria-label": say("batch") })}
      <datalist id=${panel.id}>${panel.state.inputs?.names?.map((name) => html`<option value=${name} />`)}</datalist>
      ${field(word("loss"), "loss_fn")}
      ${field(word("target"), "labels")}
      <label class="dw-check" title=${say("Moves misplaced tensors and continues, so that one run finds every fault.")}>
        <input type="checkbox" checked=${inputs.heal} disabled=${isOver} onchange=${(event) => type("heal", event.target.checked)} />
        ${say("keep going past device errors")}
      </label>
      <button class="dw-primary" type="submit" disabled=${panel.isHeld}>${say("Trace batch")}</button>
      <button class="dw-plain" hidden=${!isBusy} disabled=${isOver} onclick=${() => panel.cancel()}>${say("Cancel")}</button>
    </form>
  `;
}

// Traces the first samples of the batch alone: those with which a step fits, or reaches all GPUs.
export function traceFewer(samples, panel, look) {
  if (!samples || !panel.control) return "";
  const words = sayCount("Trace with {count} sample", "Trace with {count} samples", samples);
  return html`<button class=${look} disabled=${panel.isHeld} onclick=${() => panel.trace({ samples })}>${words}</button>`;
}

export const PICTURES = ["png", "svg"];
const FORMS = {
  side: word("Open in the side bar"),
  text: word("Copy text report"),
  html: word("Save as HTML"),
  json: word("Save snapshot as JSON"),
  trace: word("Save trace as JSON"),
  csv: word("Save tensors as CSV"),
  png: word("Save figure as PNG"),
  svg: word("Save figure as SVG"),
};

// Python writes files; without a kernel there are only the pictures, which the page makes itself.
export function Menu({ panel }) {
  const id = `${panel.id}-menu`;
  const entry = (form) => html`<button class="dw-entry" popovertarget=${id} onclick=${() => panel.exportAs(form)}>${say(FORMS[form])}</button>`;
  return html`
    <button class="dw-icon dw-menu" popovertarget=${id} aria-label=${say("Export")} title=${say("Export")}>⋯</button>
    <div id=${id} class="dw-entries" popover="auto">${(panel.control ? Object.keys(FORMS) : PICTURES).map(entry)}</div>
  `;
}

// -> what came of it, in words.
export async function save(answer) {
  if (answer.mime === "text/plain") return (await copyText(answer.text)) ? say("report copied") : say("cannot copy");
  const url = URL.createObjectURL(new Blob([answer.text], { type: answer.mime }));
  saveAs(url, answer.name);
  setTimeout(() => URL.revokeObjectURL(url), 1000);
  return say("saved {file}", { file: answer.name });
}

export function saveAs(address, name) {
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
}
