// Tables of a job: ranks that did not answer, what holds it up, one traced step, memory, and what each module holds where.
import { useState } from "preact/hooks";
import { html } from "../../../panel/static/base.js";
import { link, prose, table } from "../../../panel/static/parts.js";
import { kindHue, letterOf, MEANINGS, SIGNS } from "./ranks_map.js";
import { say, sayCount } from "../../../panel/static/words.js";

const MOST_ROWS = 1500;
const MOST_TROUBLED = 64;
const MOST_RUNS = 12;

export function stateTag(state) {
  return html`<span class="dw-state-tag" title=${say(MEANINGS[state])}><i class=${`dw-state-${state}`} aria-hidden="true">${SIGNS[state]}</i>${say(state)}</span>`;
}

// Ranks that are not simply there, those that are alike in one row; a click on a number shows the rank.
export function troubledTable({ ranks, alike }, show) {
  if (!alike.length) return "";
  const of = (cell) => ([[first]]) => cell(ranks[first]);
  const columns = [
    [say("ranks"), (runs) => runLinks(runs, show), "dw-alike"],
    [say("state"), of(({ state }) => stateTag(state)), "dw-nowrap"],
    [say("step"), of(({ step }) => step), "dw-number"],
    [say("last report"), of(ageWords), "dw-number dw-nowrap"],
    [say("why"), of(whyCell)],
  ];
  return table(say("ranks that did not answer"), columns, alike.slice(0, MOST_TROUBLED), { more: alike.length - MOST_TROUBLED });
}

const ageWords = ({ age }) => age && say("{time} ago", { time: age });

function whyCell({ note, waits }) {
  return html`${prose(note ?? "")}${waits && html`<div class="dw-soft">${say("in {collective}", { collective: waits })}</div>`}`;
}

// `0–7, 12`: a button for each run of numbers, which shows its first rank.
function runLinks(runs, show) {
  const run = ([first, last], at) => html`${at > 0 && ", "}${link(first === last ? first : `${first}–${last}`, () => show(first))}`;
  return html`${runs.slice(0, MOST_RUNS).map(run)}${runs.length > MOST_RUNS && ", …"}`;
}

// Least, usual and most of each quantity, and the rank that is far from all others.
export function memoryTable({ spans }, show) {
  if (!spans.length) return "";
  const rank = (number) => link(say("rank {number}", { number }), () => show(number));
  const amount = ([size, number]) => html`${size} <span class="dw-soft">${rank(number)}</span>`;
  const outlier = (number) => html`<b class="dw-outlier">${say("outlier:")} ${rank(number)}</b>`;
  const columns = [
    [say("for each rank"), (span) => say(span.name)],
    [say("min"), (span) => amount(span.least), "dw-number"],
    [say("median"), "median", "dw-number"],
    [say("max"), (span) => amount(span.most), "dw-number"],
    ["", (span) => bar(span.share), "dw-spread-bar"],
    ["", (span) => span.outlier !== null && outlier(span.outlier)],
  ];
  return table(say("memory of the ranks"), columns, spans);
}

const across = (share) => `${(100 * share).toFixed(1)}%`;

// From the least to the most, with a mark at the median; the axis begins at nothing.
function bar([least, median, most]) {
  const span = `left:${across(least)};width:max(2px, ${across(most - least)})`;
  return html`<span class="dw-range" aria-hidden="true"><span style=${span} /><i style=${`left:${across(median)}`} /></span>`;
}

// A row for each module, a column for each kind of ranks that the filter left; the button of a module lists its tensors there.
export function PlacementTable({ content, kept }) {
  const [open, setOpen] = useState(new Set());
  const { modules, columns, holdings, more } = content;
  if (!modules.length) return html`<div class="dw-placements"><p class="dw-empty">${say("No rank reported its tensors. Press Ask again.")}</p></div>`;
  const isLeft = ([, , runs]) => !kept || runs.some(([first, last]) => [...kept].some((number) => number >= first && number <= last));
  const shown = modules[0].held.map((_, at) => at).filter((at) => isLeft(columns[at]));
  const hidden = modules.length - MOST_ROWS;
  const notes = [
    hidden > 0 && sayCount("… and {count} more module", "… and {count} more modules", hidden),
    more > 0 && sayCount("… and {count} more distinct placement", "… and {count} more distinct placements", more),
    !shown.length && say("No rank in the filter reported its tensors. Clear the filter."),
  ];

  function turn(path) {
    const next = new Set(open);
    if (!next.delete(path)) next.add(path);
    setOpen(next);
  }

  function moduleCell({ name, path, kind, wrapper, depth, times, held }) {
    const hasTensors = shown.some((at) => held[at] >= 0 && holdings[held[at]][2].length);
    const label = say("tensors of {path}", { path: path || say("the model itself") });
    const button = html`<button class="dw-twist" aria-expanded=${open.has(path)} aria-label=${label} onclick=${() => turn(path)} />`;
    return html`
      <span title=${path} style=${`padding-left:${depth * 14}px`}>
        ${hasTensors ? button : html`<span class="dw-twist" />`}${name || say("the model itself")}<span class="dw-soft"> ${kind}</span>
        ${times > 1 && html`<span class="dw-tag">${say("{count} identical", { count: times })}</span>`}
        ${wrapper && html`<span class="dw-tag">${wrapper}</span>`}
      </span>
    `;
  }

  const kinds = shown.map((at) => [kindHead(at, columns[at]), ({ path, held }) => holding(holdings[held[at]], open.has(path))]);
  const about = ({ path, held }) => ({ "data-path": path, class: new Set(shown.map((at) => held[at])).size > 1 ? "dw-differs" : null });
  return html`
    <div class="dw-placements">
      ${table(say("placements"), [[say("module"), moduleCell, "dw-nowrap"], ...kinds], modules.slice(0, MOST_ROWS), { about })}
      ${notes.filter(Boolean).map((text) => html`<p class="dw-soft">${text}</p>`)}
    </div>
  `;
}

function kindHead(at, [ranks, size]) {
  const mark = html`<span class="dw-kind-mark" style=${kindHue(at)}>${letterOf(at)}</span>`;
  return html`<div class="dw-kind-head">${mark} ${ranks}<div class="dw-soft">${size}</div></div>`;
}

// What the ranks of a kind hold of a module; nothing where they do not have it.
function holding(held, isOpen) {
  if (!held) return html`<span class="dw-soft">${say("missing")}</span>`;
  const [words, size, tensors, isEmpty] = held;
  const nothing = isEmpty && html`<b> – ${say("nothing here")}</b>`;
  return html`
    <span>${words}</span>${size && html`<div class=${isEmpty ? "dw-soft dw-nowrap dw-nothing" : "dw-soft dw-nowrap"}>${size}${nothing}</div>`}
    ${isOpen && tensorList(tensors)}
  `;
}

function tensorList(list) {
  const about = (placed, note) => [placed, note].filter(Boolean).join(" · ");
  const line = ([name, type, placed, note]) => html`
    <li><code>${name}</code> <span class="dw-mono">${type}</span><span class="dw-soft"> ${about(placed, note)}</span></li>
  `;
  return html`<ul class="dw-list">${list.map(line)}</ul>`;
}

// A collective that does not end, with the ranks that came and those that did not.
export function heldView({ what, came, rows }, show) {
  const columns = [
    [say("ranks"), ({ who, first }) => link(who, () => show(first))],
    [say("state"), "said", "dw-held"],
    [say("line"), ({ place }) => html`<span class="dw-soft dw-nowrap">${place[0]}</span> <code>${place[1]}</code>`],
  ];
  return html`
    <section class="dw-queue">
      <h4>${say("Which ranks wait")} <span class="dw-soft">${what} · ${came}</span></h4>
      ${table(what, columns, rows, { about: ({ role }) => ({ class: "dw-queue-row", "data-role": role }) })}
    </section>
  `;
}

// One traced step of all ranks: its collectives, a row for those of one kind that one line asked for.
export function stepView({ title, rows }) {
  const called = rows.map(([kind, count, bytes, cause, group, place, code, difference]) => ({ kind, count, bytes, cause, group, place, code, difference }));
  const outlier = (words) => words && html`<div class="dw-outlier">${prose(words)}</div>`;
  const columns = [
    [say("collective"), "kind", "dw-nowrap"],
    [say("times"), "count", "dw-number"],
    [say("bytes"), ({ bytes }) => html`<span title=${say("bytes per rank")}>${bytes}</span>`, "dw-number dw-nowrap"],
    [say("called by"), "cause"],
    [say("group"), ({ group, difference }) => html`${group}${outlier(difference)}`],
    [say("line"), "place", "dw-nowrap"],
  ];
  const about = ({ difference }) => ({ class: difference ? "dw-differs" : null });
  const nothing = html`<p class="dw-soft">${say("No collective was called.")}</p>`;
  const drawn = rows.length ? table(say("collectives by line"), columns, called, { about }) : nothing;
  return html`<h4>${say("One step")}</h4><p class="dw-soft">${title}</p>${drawn}`;
}
