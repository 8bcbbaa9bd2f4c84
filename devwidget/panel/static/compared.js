// Before and after: what crossed between the devices in both traces, and a table of what differs.
import { html } from "./base.js";
import { icon } from "./edits.js";
import { chip, prose, table } from "./parts.js";
import { say } from "./words.js";

export function comparedSection({ verdict, rows, hops, fixed, new: added, sides, change }) {
  const columns = [
    ["", 0],
    [say("before"), 1, "dw-number"],
    [say("after"), 2, "dw-number"],
  ];
  const line = (kind, words) => (text) => html`<li><b class=${kind}>${words}</b> ${prose(text)}</li>`;
  return html`
    <section class="dw-compared">
      <h4>${verdict}</h4>
      ${sides && sidesOf(sides, change)}
      <ul class="dw-list">${fixed.map(line("dw-fixed", say("✓ fixed:")))}${added.map(line("dw-new", say("✖ new:")))}</ul>
      ${rows.length > 0 && table(say("before and after"), columns, [...rows, ...hops.map(hopCells)])}
    </section>
  `;
}

function hopCells({ source, target, cause, modules, code, before, after }) {
  const where = prose(say("in `{modules}`, {cause}", { modules, cause }));
  const line = code && html`<code class="dw-code-line" title=${code}>${code}</code>`;
  return [html`${chip(source)} → ${chip(target)} ${where}${line}`, before, after];
}

// What crossed on either side, and how many hops there were and are.
function sidesOf(sides, [before, after]) {
  if (!sides.some(({ crossings }) => crossings.length)) return "";
  const [first, second] = sides;
  return html`
    <div class="dw-beside">
      ${sideOf(first, say("before"))}
      <div class="dw-change">
        <b class=${before > after ? "dw-new" : null}>${before}</b><span class="dw-soft">→</span><b>${after}</b><span class="dw-soft">${say("hops")}</span>
      </div>
      ${sideOf(second, say("after"))}
    </div>
  `;
}

function sideOf({ crossings, wrong }, name) {
  return html`
    <figure class="dw-side">
      <figcaption>${icon(wrong ? "error" : "good")}<b>${name}</b></figcaption>
      ${crossings.length ? html`<ul class="dw-list">${crossings.map(crossed)}</ul>` : html`<span class="dw-soft">${say("no transfers")}</span>`}
    </figure>
  `;
}

function crossed({ source, target, healed, count, bytes }) {
  const words = count > 1 ? `${bytes} × ${count}` : bytes;
  return html`<li>${chip(source)} → ${chip(target)} <b class=${healed ? "dw-new" : null}>${words}</b>${healed && ` ${say("moved by devwidget")}`}</li>`;
}
