// Before and after: what crossed between the devices in both traces, and a table of what differs.
import { chip, h, hueOf, prose } from "./dom.js";
import { icon } from "./edits.js";
import { table } from "./tables.js";
import { say, sayCount, word } from "./words.js";

const SIDES = [word("before"), word("after")];

export function comparedSection(verdict, { rows, hops, fixed, new: added, sides, change }) {
  const named = (kind, words, texts) => texts.map((text) => h("li", null, h("b", { class: `dw-${kind}` }, `${words} `), ...prose(text)));
  const row = (what, ...cells) => h("tr", null, h("td", null, what), cells.map((text) => h("td", { class: "dw-number" }, text)));
  const hopRow = ({ source, target, cause, modules, code, before, after }) => row([chip(source), " → ", chip(target), " ", ...prose(say("in `{modules}`, {cause}", { modules, cause })), code ? h("code", { class: "dw-code-line", title: code }, code) : ""], before, after);
  const head = [[""], [say("before"), "dw-number"], [say("after"), "dw-number"]];
  return h(
    "section",
    { class: "dw-compared" },
    h("h4", null, verdict),
    sides ? beside(sides, change) : "",
    h("ul", { class: "dw-words" }, named("fixed", say("✓ fixed:"), fixed), named("new", say("✖ new:"), added)),
    rows.length ? table(say("before and after"), head, [...rows.map((cells) => row(...cells)), ...hops.map(hopRow)]) : "",
  );
}

// Two pictures with the same columns, and how many hops there were and are.
function beside(sides, [before, after]) {
  const devices = [...new Set(sides.flatMap(({ crossings }) => crossings.flatMap(({ source, target }) => [source, target])))].sort();
  if (!devices.length) return "";
  const [first, second] = sides.map((side, at) => pictured(side, SIDES[at], devices));
  const amount = h("div", { class: "dw-change" }, h("b", { class: before > after ? "dw-new" : null }, before), h("span", { class: "dw-soft" }, "→"), h("b", null, after), h("span", { class: "dw-soft" }, say("hops")));
  return h("div", { class: "dw-beside" }, first, amount, second);
}

// A column for each device, and an arrow for what goes from one to another.
function pictured({ crossings, wrong }, name, devices) {
  const column = (device, at) => h("span", { class: "dw-column", style: `--dw-hue:${hueOf(device)};grid-column:${at + 1};grid-row:1/${crossings.length + 3}` }, h("span", { class: "dw-column-name", "data-device": device }, h("span", { class: "dw-dot", "aria-hidden": "true" }), device));
  const arrow = ({ source, target, healed, count, bytes }, at) => {
    const [from, to] = [devices.indexOf(source), devices.indexOf(target)];
    const [left, right] = [Math.min(from, to), Math.max(from, to)];
    const times = sayCount("{count} time", "{count} times", count);
    const words = say("{bytes}, {times}, from {source} to {target}", { bytes, times, source, target });
    return h("span", { class: `dw-crossing${healed ? " dw-crossing-healed" : ""}${from > to ? " dw-crossing-back" : ""}`, role: "img", "aria-label": words, title: words, style: `--dw-span:${right - left + 1};grid-column:${left + 1}/${right + 2};grid-row:${at + 2}` }, h("span", null, count > 1 ? `${bytes} × ${count}` : bytes));
  };
  const empty = crossings.length ? "" : h("span", { class: "dw-soft dw-nothing-crosses", style: `grid-column:1/${devices.length + 1};grid-row:2` }, say("no transfers"));
  return h("figure", { class: "dw-side" }, h("figcaption", null, icon(wrong ? "error" : "tried"), h("b", null, say(name))), h("div", { class: "dw-ladder", style: `grid-template-columns:repeat(${devices.length},minmax(0,1fr))` }, devices.map(column), crossings.map(arrow), empty));
}
