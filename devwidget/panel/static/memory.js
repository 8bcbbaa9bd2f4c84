// The Memory tab: what did not fit, the curves, the peaks, and what lived then.
import { chip, h } from "./dom.js";
import { codeRow, moduleLink, table } from "./tables.js";
import { say } from "./words.js";

export function memorySection({ peaks, refused, holdings, notes }, figure, reveal) {
  const note = (kind) => (text) => h("p", { class: kind }, text);
  const tables = [peaks.length ? peakTable(peaks, reveal) : "", holdings.length ? holdingTable(holdings, reveal) : ""];
  return [...refused.map(note("dw-ended")), figure, ...tables, ...notes.map(note("dw-soft"))];
}

// Where something was allocated: the module, which leads to its row, the phase, and the line.
function whereCells(each, reveal) {
  const module = each.path === null ? "" : moduleLink(each, reveal);
  return [
    h("td", null, module, h("span", { class: "dw-soft" }, ` ${each.phase}`)),
    h("td", null, each.place),
  ];
}

function peakTable(peaks, reveal) {
  const head = [[say("device")], [say("peak"), "dw-number"], [say("capacity"), "dw-number"], [say("made up of")], [say("reached in")], [say("line")]];
  const rows = peaks.flatMap((each) => [
    h(
      "tr",
      { class: "dw-peak", "data-device": each.device },
      h("td", null, chip(each.device)),
      ...[each.peak, each.of].map((text) => h("td", { class: "dw-number" }, text)),
      h("td", { class: "dw-parts" }, each.parts),
      ...whereCells(each, reveal),
    ),
    ...codeRow(each.code, head.length),
  ]);
  return table(say("peak of each device"), head, rows);
}

function holdingTable(holdings, reveal) {
  const head = [[say("device")], [say("live at the peak"), "dw-number"], [say("for")], [say("allocated in")], [say("line")]];
  const rows = holdings.flatMap((each) => [
    h(
      "tr",
      { class: "dw-holding", "data-device": each.device },
      h("td", null, chip(each.device)),
      h("td", { class: "dw-number" }, each.bytes),
      h("td", null, each.role),
      ...whereCells(each, reveal),
    ),
    ...codeRow(each.code, head.length),
  ]);
  return table(say("live at the peak, by line"), head, rows);
}
