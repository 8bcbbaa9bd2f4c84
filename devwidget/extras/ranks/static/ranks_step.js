// One traced step of all ranks: its collectives, a row for those of one kind that one line asked for.
import { h, prose } from "../../../panel/static/dom.js";
import { table } from "../../../panel/static/tables.js";
import { say } from "../../../panel/static/words.js";

export function stepView({ step }) {
  if (!step) return [];
  return [h("h4", null, say("One step")), h("p", { class: "dw-soft" }, step.title), step.rows.length ? stepTable(step.rows) : h("p", { class: "dw-soft" }, say("No collective was called."))];
}

function stepTable(rows) {
  const head = [[say("collective")], [say("times"), "dw-number"], [say("bytes"), "dw-number"], [say("called by")], [say("group")], [say("line")]];
  const cells = ([kind, count, bytes, cause, group, place, code, difference]) =>
    h(
      "tr",
      { class: difference ? "dw-differs" : null },
      h("td", { class: "dw-nowrap" }, kind),
      h("td", { class: "dw-number" }, count),
      h("td", { class: "dw-number dw-nowrap", title: say("bytes per rank") }, bytes),
      h("td", null, cause),
      h("td", null, group, difference ? h("div", { class: "dw-outlier" }, prose(difference)) : ""),
      h("td", { class: "dw-place" }, h("span", { class: "dw-nowrap" }, place), code ? h("code", { class: "dw-code-line", title: code }, code) : ""),
    );
  return table(say("collectives by line"), head, rows.map(cells));
}
