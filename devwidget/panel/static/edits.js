// An edit as a difference whose changed words are marked; the icons of severities and states.
import { h } from "./dom.js";
import { say, sayCount, word } from "./words.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const SHAPES = {
  error: ["M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13z", "M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4"],
  warning: ["M8 2.2l6.2 11.3H1.8z", "M8 6.4v3.4M8 11.4v.6"],
  info: ["M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13z", "M8 7.2v4M8 4.6v.6"],
  tried: ["M2.8 8.6l3.4 3.4l7-8"],
};
const SEVERITY = { error: word("error"), warning: word("warning"), info: word("hint") };
const STATES = { tried: word("fix verified"), fails: word("fix failed"), untried: word("fix not verified"), words: word("advice only"), none: word("no fix") };

export function icon(name) {
  const drawn = document.createElementNS(NAMESPACE, "svg");
  drawn.setAttribute("viewBox", "0 0 16 16");
  drawn.setAttribute("class", `dw-icon-${name} dw-glyph`);
  drawn.setAttribute("aria-hidden", "true");
  for (const line of SHAPES[name]) drawn.appendChild(document.createElementNS(NAMESPACE, "path")).setAttribute("d", line);
  return drawn;
}

export function severityIcon(severity) {
  return h("span", { class: "dw-severity", title: say(SEVERITY[severity]) }, icon(severity), h("span", { class: "dw-hidden" }, say(SEVERITY[severity])));
}

// What is known of a fix; a finding without one says so.
export function triedWords(fix) {
  const state = fix?.state ?? "none";
  return h("span", { class: `dw-tried dw-tried-${state}` }, state === "tried" ? icon("tried") : "", h("span", null, say(STATES[state])));
}

// Rows of `report/page/edit_rows.py`; of many the first `most`, and how many more there are.
export function editRows(rows, most = Infinity) {
  const line = ([sign, number, parts]) =>
    h(
      "span",
      { class: sign === "+" ? "dw-row-added" : "dw-row-removed" },
      h("span", { class: "dw-line" }, number),
      h("span", { class: "dw-sign" }, sign === "+" ? "+" : "−"),
      h("code", null, parts.map(([text, changes]) => (changes ? h("mark", null, text) : text))),
    );
  const more = rows.length - most;
  return h("div", { class: "dw-rows" }, rows.slice(0, most).map(line), more > 0 ? h("span", { class: "dw-soft" }, sayCount("… {count} more line", "… {count} more lines", more)) : "");
}
