// The Watch tab: a whole run, what was found in it, and the steps that were recorded, each of which can be opened.
import { html } from "../../../panel/static/base.js";
import { Findings } from "../../../panel/static/findings.js";
import { prose, table } from "../../../panel/static/parts.js";
import { SECTIONS } from "../../../panel/static/sections.js";
import { say, word } from "../../../panel/static/words.js";

SECTIONS.push({ name: "watched", tab: word("Watch"), open: openWatch });

function openWatch(panel) {
  function page() {
    const watched = panel.latest("watched");
    if (!watched.summary) return null;
    const { findings } = watched;
    return { content: watchPage(watched, panel), count: findings.length, severity: findings[0]?.severity };
  }

  return { page };
}

// A saved page has no kernel, and opens no recorded step.
function watchPage(watched, panel) {
  const { summary, error, findings, not_checked, recorded, figure } = watched;
  const open = panel.control && ((step) => openRecorded(step, panel));
  return html`
    <p class="dw-watch-summary"><strong>${summary}</strong></p>
    ${error && html`<p class="dw-ended">${error}</p>`}
    ${panel.figure("watch", figure, (facts) => revealStep(facts, open, panel))}
    ${findings.length > 0 && html`<${Findings} traced=${watched} reveal=${panel.reveal} />`}
    ${!findings.length && not_checked.map((note) => html`<p class="dw-soft">${prose(note)}</p>`)}
    ${recorded.length > 0 && recordedTable(recorded, open)}
  `;
}

// A step that was recorded, as if it had been traced here; the answer comes after what is drawn.
async function openRecorded(step, panel) {
  const answer = await panel.ask({ ask: "recorded", step });
  if (!answer.error) panel.tab.value = "Trace";
}

// A mark of the figure leads to its recorded step, null where none was.
function revealStep(facts, open, panel) {
  const step = Array.isArray(facts) ? facts[2]?.recorded : undefined;
  if (step === undefined) panel.revealMark(facts);
  else if (open && step !== null) open(step);
}

function recordedTable(recorded, open) {
  const button = (step) => html`<button class="dw-plain" aria-label=${say("open step {step}", { step })} onclick=${() => open(step)}>${say("open")}</button>`;
  const columns = [
    [say("step"), ({ step }) => step.toLocaleString("en"), "dw-number"],
    [say("recorded because"), "reason"],
    [say("findings"), "found"],
    ["", ({ step }) => open && button(step)],
  ];
  return table(say("recorded steps"), columns, recorded);
}
