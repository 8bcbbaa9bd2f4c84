// The Watch tab: a whole run, what was found in it, and the steps that were recorded, each of which can be opened.
import { h, prose } from "./dom.js";
import { findingsView } from "./findings.js";
import { table } from "./tables.js";
import { say } from "./words.js";

// `open(step)` opens a recorded step; a saved page, which has nobody to ask for it, has no `open`.
export function watchSection({ summary, error, findings, not_checked, recorded }, figure, reveal, open) {
  const run = { summary, findings, checked: [], not_checked, not_restored: [], failure: null };
  return [
    h("p", { class: "dw-watch-summary" }, h("strong", null, summary)),
    error ? h("p", { class: "dw-ended" }, error) : "",
    figure,
    ...(findings.length ? findingsView(run, reveal, () => "") : not_checked.map((note) => h("p", { class: "dw-soft" }, ...prose(note)))),
    recorded.length ? recordedTable(recorded, open) : "",
  ];
}

function recordedTable(recorded, open) {
  const head = [[say("step"), "dw-number"], [say("recorded because")], [say("findings")], [""]];
  const rows = recorded.map(({ step, reason, found }) =>
    h(
      "tr",
      { class: "dw-recorded", "data-step": step },
      h("td", { class: "dw-number" }, step.toLocaleString("en")),
      h("td", null, reason),
      h("td", null, found),
      h("td", null, open ? h("button", { class: "dw-plain", type: "button", "aria-label": say("open step {step}", { step }), onclick: () => open(step) }, say("open")) : ""),
    ),
  );
  return table(say("recorded steps"), head, rows);
}
