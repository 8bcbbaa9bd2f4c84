// The Watch tab: a whole run, what was found in it, and the steps that were recorded, each of which can be opened.
import { ask, h, prose } from "../../../panel/static/dom.js";
import { findingsView } from "../../../panel/static/findings.js";
import { SECTIONS } from "../../../panel/static/sections.js";
import { table } from "../../../panel/static/tables.js";
import { say, word } from "../../../panel/static/words.js";

SECTIONS.push({ name: "watched", tab: word("Watch"), open: openWatch });

function openWatch({ model, live, control, tabs, figure, reveal, revealMark, complain }) {
  const steps = figure("dw-watch", revealStep);

  function draw() {
    const last = model.get("watched") ?? {};
    const sampled = live?.get("watched"); // while a cell runs
    const watched = sampled?.summary && sampled.over === last.drawn ? sampled : last;
    tabs.offer("Watch", Boolean(watched.summary));
    if (!watched.summary) return;
    tabs.count("Watch", watched.findings.length, watched.findings[0]?.severity);
    tabs.page("Watch").replaceChildren(...watchSection(watched, steps.el, reveal, control && openRecorded));
    steps.show(watched.figure);
  }

  // A step that was recorded, as if it had been traced here; the answer comes after what is drawn.
  function openRecorded(step) {
    ask(control, { ask: "recorded", step }, (answer) => (answer.error ? complain(answer) : tabs.open("Trace")));
  }

  // A mark of the figure leads to its recorded step, null where none was.
  function revealStep(facts) {
    const step = Array.isArray(facts) ? facts[2]?.recorded : undefined;
    if (step === undefined) revealMark(facts);
    else if (control && step !== null) openRecorded(step);
  }

  return { draw };
}

// `open(step)` opens a recorded step; a saved page has no kernel, so it has no `open`.
function watchSection({ summary, error, findings, not_checked, recorded }, figure, reveal, open) {
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
