// Tables below the figures; the hops by line.
import { causeWords, chip, h, traceLink } from "./dom.js";
import { say } from "./words.js";

export function table(label, head, rows) {
  const cells = head.map(([text, kind]) => h("th", { scope: "col", class: kind }, text));
  return h("div", { class: "dw-scroll-x dw-scroll-y", role: "region", tabindex: "0", "aria-label": label }, h("table", { class: "dw-table", "aria-label": label }, h("thead", null, h("tr", null, cells)), h("tbody", null, rows)));
}

// The code of a row, below it, as wide as the table.
export function codeRow(code, columns) {
  return code ? [h("tr", { class: "dw-code-row" }, h("td", { colspan: columns }, h("code", { class: "dw-code-line" }, code)))] : [];
}

// To a module's row in the tree, by its path or its number; outside the model there is none.
export function moduleLink({ path = null, row = -1, module }, reveal) {
  if (path === null && row < 0) return module;
  const lead = () => reveal(path === null ? { row } : { path });
  return h("button", { class: "dw-link", type: "button", title: say("show in the module table"), onclick: lead }, module ?? (path || say("the model itself")));
}

// `reveal` leads to a row of the module tree, or to a place of the timeline.
export function hopTable(hops, reveal) {
  if (!hops.length) return h("p", { class: "dw-empty" }, say("No tensor was copied between devices."));
  const timed = hops.some((hop) => hop.seconds); // virtual GPUs have no times
  const cost = timed ? [[say("cost"), "dw-number"]] : [];
  const head = [[say("from → to")], [say("times"), "dw-number"], [say("bytes"), "dw-number"], [say("where")], ...cost, [say("cause")], [say("tensor")]];
  const rows = hops.flatMap((hop) => [
    h(
      "tr",
      { class: "dw-hop-row", tabindex: "-1", "data-source": hop.source, "data-target": hop.target, "data-cause": hop.cause },
      h("td", { class: "dw-nowrap" }, chip(hop.source), " ", traceLink(hop, reveal, "→"), " ", chip(hop.target)),
      h("td", { class: "dw-number" }, hop.count),
      h("td", { class: "dw-number" }, hop.bytes),
      h("td", { class: "dw-place" }, moduleLink(hop, reveal), " ", h("span", { class: "dw-nowrap" }, hop.place)),
      timed && h("td", { class: "dw-number", title: say("CPU time of the calls") }, hop.seconds),
      h("td", null, ...causeWords(hop.cause), h("span", { class: "dw-soft" }, ` ${say(hop.phase)}`)),
      h("td", { class: "dw-mono dw-shapes" }, hop.what),
    ),
    ...codeRow(hop.code, head.length),
  ]);
  return table(say("hops by line"), head, rows);
}

// The lines at which the host waited for a device.
export function waitTable(waits, reveal) {
  if (!waits?.length) return "";
  const head = [[say("syncs with")], [say("times"), "dw-number"], [say("where")], [say("call")]];
  const rows = waits.flatMap((wait) => [
    h(
      "tr",
      { class: "dw-wait-row", "data-device": wait.device },
      h("td", { class: "dw-nowrap" }, chip(wait.device)),
      h("td", { class: "dw-number" }, wait.count),
      h("td", { class: "dw-place" }, moduleLink(wait, reveal), " ", h("span", { class: "dw-nowrap" }, wait.place)),
      h("td", null, h("span", { class: "dw-mono" }, wait.what), h("span", { class: "dw-soft" }, ` ${wait.phase}`)),
    ),
    ...codeRow(wait.code, head.length),
  ]);
  return table(say("syncs by line"), head, rows);
}
