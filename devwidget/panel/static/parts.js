// Small parts of many views: code in prose, devices, links to rows and places, tables.
import { Component, createRef } from "preact";
import { useState } from "preact/hooks";
import { html } from "./base.js";
import { say, word } from "./words.js";

// `words` in backticks become code; the rest stays text.
export function prose(text) {
  return String(text).split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
}

// HUES is written in front of the joined files; see `report/style/palette.py`.
export function hueOf(device) {
  const [kind, index] = String(device).split(":");
  return HUES[kind] ?? HUES.accelerators[(Number(index) || 0) % HUES.accelerators.length];
}

// What Python does, or did, or why it did not.
export function Status({ page }) {
  const { kind = "idle", text = "" } = page.status.value;
  return html`
    <div class=${`dw-status dw-status-${kind}`} role="status" aria-live="polite">
      ${page.isBusy.value && html`<span class="dw-spin" aria-hidden="true" />`}${prose(text)}
    </div>
  `;
}

export const Dot = () => html`<span class="dw-dot" aria-hidden="true" />`;

// A device is never shown by colour alone: the chip has its name.
export function chip(device) {
  const [, kind, number] = /^(\w+:)(\d+)$/.exec(device) ?? [null, "", device];
  const name = html`<span>${kind && html`<span class="dw-chip-kind">${kind}</span>`}${number}</span>`;
  const look = device === "meta" ? "dw-chip dw-meta" : "dw-chip";
  return html`<span class=${look} data-device=${device} style=${`--dw-hue:${hueOf(device)}`}><${Dot} />${name}</span>`;
}

// What moved a tensor, where the code of the cause says too little.
const CAUSES = { explicit: word("`.to()` or copy"), healed: word("moved by devwidget") };

export const causeWords = (cause) => prose(say(CAUSES[cause] ?? cause));

export function link(text, act, facts = {}) {
  return html`<button class="dw-link" onclick=${act} ...${facts}>${text}</button>`;
}

// To the place of a finding or a hop on the timeline.
export function traceLink({ at }, reveal, text = say("in the trace")) {
  const facts = { class: "dw-link dw-at", title: say("show in the trace"), "aria-label": say("in the trace") };
  return at && link(text, () => reveal({ at }), facts);
}

// To a module's row in the tree, by its path or its number; outside the model there is none.
export function moduleLink({ path = null, row = -1, module }, reveal) {
  if (path === null && row < 0) return module;
  const target = path === null ? { row } : { path };
  return link(module ?? (path || say("the model itself")), () => reveal(target), { title: say("show in the module table") });
}

// A table. Each of `columns` is [title, cell, class]: `cell(row)`, or `row[cell]`, is what stands in it. `about(row)` says what the row
// is, and `row.code` stands below it, as wide as the table. `more` says how many there are beside `rows`.
export function table(label, columns, rows, { about = (_) => ({}), more = 0 } = {}) {
  const shown = columns.filter(Boolean);
  const cellOf = (row, cell, kind) => html`<td class=${kind}>${typeof cell === "function" ? cell(row) : row[cell]}</td>`;
  const lines = (row) => html`
    <tr ...${about(row)}>${shown.map(([, cell, kind]) => cellOf(row, cell, kind))}</tr>
    ${row.code && html`<tr class="dw-code-row"><td colspan=${shown.length}><code class="dw-code-line">${row.code}</code></td></tr>`}
  `;
  return html`
    <div class="dw-scroll-x dw-scroll-y" role="region" tabindex="0" aria-label=${label}>
      <table class="dw-table" aria-label=${label}>
        <thead><tr>${shown.map(([title, , kind]) => html`<th scope="col" class=${kind?.includes("dw-number") ? "dw-number" : null}>${title}</th>`)}</tr></thead>
        <tbody>${rows.map(lines)}</tbody>
      </table>
    </div>
    ${more > 0 && html`<p class="dw-soft">${say("… and {count} more", { count: more })}</p>`}
  `;
}

// -> whether it is on the clipboard: a page that is no secure context has none.
export function copyText(text) {
  if (!navigator.clipboard) return Promise.resolve(false);
  return navigator.clipboard.writeText(text).then(() => true, () => false);
}

// A button that copies a text, and says for a moment whether it did.
export function CopyButton({ text, label, name, look = "dw-plain dw-copy" }) {
  const [words, setWords] = useState("");
  async function copy() {
    setWords((await copyText(text)) ? say("copied") : say("cannot copy"));
    setTimeout(setWords, 1500, "");
  }
  return html`<button class=${look} aria-label=${label} title=${label} onclick=${copy}>${words || name}</button>`;
}

// Code that can be copied.
export function codeToCopy(code, label) {
  return html`<div class="dw-fix"><pre><code>${code}</code></pre><${CopyButton} text=${code} label=${label} name=${say("copy")} /></div>`;
}

// Sentences as a list.
export function wordList(words) {
  return words?.length > 0 && html`<ul class="dw-words">${words.map((text) => html`<li>${prose(text)}</li>`)}</ul>`;
}

// What Python draws is markup whose every text was escaped there (`report/style/safe_text.py`). Its buttons with a text to copy
// copy it, and the keyboard stays in what is drawn anew.
export class Markup extends Component {
  el = createRef();

  getSnapshotBeforeUpdate() {
    return this.el.current.contains(document.activeElement);
  }

  componentDidUpdate(_, __, wasFocused) {
    if (wasFocused && !this.el.current.contains(document.activeElement)) this.el.current.querySelector("button")?.focus();
  }

  async copy({ target: button }) {
    if (button.dataset.copy) button.textContent = (await copyText(button.dataset.copy)) ? say("copied") : say("cannot copy");
  }

  render({ text }) {
    return html`<div ref=${this.el} onclick=${(event) => this.copy(event)} dangerouslySetInnerHTML=${{ __html: text ?? "" }} />`;
  }
}
