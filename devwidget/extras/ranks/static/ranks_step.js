// One traced step of all ranks: its collectives, a row for those of one kind that one line asked for.
import { html } from "../../../panel/static/base.js";
import { prose, table } from "../../../panel/static/parts.js";
import { say } from "../../../panel/static/words.js";

export function stepView({ title, rows }) {
  const nothing = html`<p class="dw-soft">${say("No collective was called.")}</p>`;
  return html`<h4>${say("One step")}</h4><p class="dw-soft">${title}</p>${rows.length ? stepTable(rows) : nothing}`;
}

function stepTable(rows) {
  const bytesWords = ([, , bytes]) => html`<span title=${say("bytes per rank")}>${bytes}</span>`;
  const columns = [
    [say("collective"), ([kind]) => kind, "dw-nowrap"],
    [say("times"), ([, count]) => count, "dw-number"],
    [say("bytes"), bytesWords, "dw-number dw-nowrap"],
    [say("called by"), ([, , , cause]) => cause],
    [say("group"), groupCell],
    [say("line"), lineCell, "dw-place"],
  ];
  return table(say("collectives by line"), columns, rows, (row) => ({ class: row[7] ? "dw-differs" : null }));
}

function groupCell([, , , , group, , , difference]) {
  return html`${group}${difference && html`<div class="dw-outlier">${prose(difference)}</div>`}`;
}

function lineCell([, , , , , place, code]) {
  return html`<span class="dw-nowrap">${place}</span>${code && html`<code class="dw-code-line" title=${code}>${code}</code>`}`;
}
