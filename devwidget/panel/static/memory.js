// The Memory tab: what did not fit, the curves, the peaks, and what lived then.
import { html } from "./base.js";
import { chip, moduleLink, table } from "./parts.js";
import { say } from "./words.js";

export function memorySection({ peaks, refused, holdings, notes }, figure, reveal) {
  return html`
    ${refused.map((text) => html`<p class="dw-ended">${text}</p>`)}
    ${figure}
    ${peaks.length > 0 && peakTable(peaks, reveal)}
    ${holdings.length > 0 && holdingTable(holdings, reveal)}
    ${notes.map((text) => html`<p class="dw-soft">${text}</p>`)}
  `;
}

const deviceColumn = () => [say("device"), (each) => chip(each.device)];

// Where something was allocated: the module, which leads to its row, the phase, and the line.
function whereColumns(title, reveal) {
  const module = (each) => (each.path === null ? "" : moduleLink(each, reveal));
  return [
    [title, (each) => html`${module(each)}<span class="dw-soft"> ${each.phase}</span>`],
    [say("line"), (each) => each.place],
  ];
}

function peakTable(peaks, reveal) {
  const columns = [
    deviceColumn(),
    [say("peak"), (each) => each.peak, "dw-number"],
    [say("capacity"), (each) => each.of, "dw-number"],
    [say("made up of"), (each) => each.parts, "dw-parts"],
    ...whereColumns(say("reached in"), reveal),
  ];
  return table(say("peak of each device"), columns, peaks, ({ device }) => ({ class: "dw-peak", "data-device": device }));
}

function holdingTable(holdings, reveal) {
  const columns = [
    deviceColumn(),
    [say("live at the peak"), (each) => each.bytes, "dw-number"],
    [say("for"), (each) => each.role],
    ...whereColumns(say("allocated in"), reveal),
  ];
  return table(say("live at the peak, by line"), columns, holdings, ({ device }) => ({ class: "dw-holding", "data-device": device }));
}
