// An edit as a difference whose changed words are marked; the icons of severities and states.
import { html } from "./base.js";
import { say, sayCount, word } from "./words.js";

const SHAPES = {
  error: ["M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13z", "M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4"],
  warning: ["M8 2.2l6.2 11.3H1.8z", "M8 6.4v3.4M8 11.4v.6"],
  info: ["M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13z", "M8 7.2v4M8 4.6v.6"],
  good: ["M2.8 8.6l3.4 3.4l7-8"],
};
const SEVERITY = { error: word("error"), warning: word("warning"), info: word("hint") };
const STATES = { tried: word("fix verified"), fails: word("fix failed"), untried: word("fix not verified"), words: word("advice only"), none: word("no fix") };

export function icon(name) {
  return html`<svg viewBox="0 0 16 16" class=${`dw-glyph dw-${name}`} aria-hidden="true">${SHAPES[name].map((line) => html`<path d=${line} />`)}</svg>`;
}

export function severityIcon(severity) {
  const words = say(SEVERITY[severity]);
  return html`<span class="dw-severity" title=${words}>${icon(severity)}<span class="dw-hidden">${words}</span></span>`;
}

// What is known of a fix; a finding without one says so.
export function triedWords(fix) {
  const state = fix?.state ?? "none";
  return html`<span class=${`dw-tried dw-tried-${state}`}>${state === "tried" && icon("good")}<span>${say(STATES[state])}</span></span>`;
}

// Rows of `report/page/edit_rows.py`; of many the first `most`, and how many more there are.
export function editRows(rows, most = Infinity) {
  const more = rows.length - most;
  return html`
    <div class="dw-rows">
      ${rows.slice(0, most).map(editRow)}
      ${more > 0 && html`<span class="dw-soft">${sayCount("… {count} more line", "… {count} more lines", more)}</span>`}
    </div>
  `;
}

function editRow([sign, number, parts]) {
  const isAdded = sign === "+";
  const code = parts.map(([text, changes]) => (changes ? html`<mark>${text}</mark>` : text));
  return html`
    <span class=${isAdded ? "dw-row-added" : "dw-row-removed"}>
      <span class="dw-line">${number}</span><span class="dw-sign">${isAdded ? "+" : "−"}</span><code>${code}</code>
    </span>
  `;
}
