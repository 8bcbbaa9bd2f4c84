// Before and after: what crossed between the devices in both traces, and a table of what differs.
import { html } from "./base.js";
import { icon } from "./edits.js";
import { chip, Dot, hueOf, prose, table } from "./parts.js";
import { say, sayCount, word } from "./words.js";

const SIDES = [word("before"), word("after")];

export function comparedSection({ verdict, rows, hops, fixed, new: added, sides, change }) {
  const columns = [
    ["", ([what]) => what],
    [say("before"), ([, before]) => before, "dw-number"],
    [say("after"), ([, , after]) => after, "dw-number"],
  ];
  const line = (kind, words) => (text) => html`<li><b class=${kind}>${words}</b> ${prose(text)}</li>`;
  return html`
    <section class="dw-compared">
      <h4>${verdict}</h4>
      ${sides && drawnSides(sides, change)}
      <ul class="dw-words">${fixed.map(line("dw-fixed", say("✓ fixed:")))}${added.map(line("dw-new", say("✖ new:")))}</ul>
      ${rows.length > 0 && table(say("before and after"), columns, [...rows, ...hops.map(hopCells)])}
    </section>
  `;
}

function hopCells({ source, target, cause, modules, code, before, after }) {
  const where = prose(say("in `{modules}`, {cause}", { modules, cause }));
  const line = code && html`<code class="dw-code-line" title=${code}>${code}</code>`;
  return [html`${chip(source)} → ${chip(target)} ${where}${line}`, before, after];
}

// Two pictures with the same columns, and how many hops there were and are.
function drawnSides(sides, [before, after]) {
  const ends = sides.flatMap(({ crossings }) => crossings.flatMap(({ source, target }) => [source, target]));
  const devices = [...new Set(ends)].sort();
  if (!devices.length) return "";
  const [first, second] = sides.map((side, at) => drawnSide(side, SIDES[at], devices));
  return html`
    <div class="dw-beside">
      ${first}
      <div class="dw-change">
        <b class=${before > after ? "dw-new" : null}>${before}</b><span class="dw-soft">→</span><b>${after}</b><span class="dw-soft">${say("hops")}</span>
      </div>
      ${second}
    </div>
  `;
}

// A column for each device, and an arrow for what goes from one to another.
function drawnSide({ crossings, wrong }, name, devices) {
  const tracks = `grid-template-columns:repeat(${devices.length},minmax(0,1fr))`;
  const nothing = html`<span class="dw-soft dw-nothing-crosses" style=${`grid-column:1/${devices.length + 1};grid-row:2`}>${say("no transfers")}</span>`;
  return html`
    <figure class="dw-side">
      <figcaption>${icon(wrong ? "error" : "tried")}<b>${say(name)}</b></figcaption>
      <div class="dw-ladder" style=${tracks}>
        ${devices.map((device, at) => column(device, at, crossings.length))}
        ${crossings.map((crossing, at) => arrow(crossing, at, devices))}
        ${!crossings.length && nothing}
      </div>
    </figure>
  `;
}

function column(device, at, rows) {
  const place = `--dw-hue:${hueOf(device)};grid-column:${at + 1};grid-row:1/${rows + 3}`;
  return html`<span class="dw-column" style=${place}><span class="dw-column-name" data-device=${device}><${Dot} />${device}</span></span>`;
}

function arrow({ source, target, healed, count, bytes }, at, devices) {
  const [from, to] = [devices.indexOf(source), devices.indexOf(target)];
  const [left, right] = [Math.min(from, to), Math.max(from, to)];
  const times = sayCount("{count} time", "{count} times", count);
  const words = say("{bytes}, {times}, from {source} to {target}", { bytes, times, source, target });
  const look = `dw-crossing${healed ? " dw-crossing-healed" : ""}${from > to ? " dw-crossing-back" : ""}`;
  const place = `--dw-span:${right - left + 1};grid-column:${left + 1}/${right + 2};grid-row:${at + 2}`;
  return html`<span class=${look} role="img" aria-label=${words} title=${words} style=${place}><span>${count > 1 ? `${bytes} × ${count}` : bytes}</span></span>`;
}
