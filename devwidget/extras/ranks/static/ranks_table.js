// Tables of a job: ranks that did not answer, memory, and what each module holds on the ranks of each kind.
import { h, prose } from "../../../panel/static/dom.js";
import { letterOf, MEANINGS, SIGNS } from "./ranks_map.js";
import { table } from "../../../panel/static/tables.js";
import { say, sayCount } from "../../../panel/static/words.js";

const MOST_ROWS = 1500;
const MOST_TROUBLED = 64;
const MOST_RUNS = 12;

export function stateTag(state) {
  return h("span", { class: "dw-state-tag", title: say(MEANINGS[state]) }, h("i", { class: `dw-state-${state}`, "aria-hidden": "true" }, SIGNS[state]), say(state));
}

// Ranks that are not simply there, those that are alike in one row, what findings name first; a click on a number shows the rank.
export function troubledTable({ ranks, named, alike }, kept, show) {
  const groups = alike.map((numbers) => numbers.filter((number) => !kept || kept.has(number))).filter((numbers) => numbers.length);
  const isNamed = (numbers) => numbers.some((number) => named?.includes(number));
  const ordered = [...groups.filter(isNamed), ...groups.filter((numbers) => !isNamed(numbers))];
  if (!ordered.length) return "";
  const head = [[say("ranks")], [say("state")], [say("step"), "dw-number"], [say("last report"), "dw-number"], [say("why")]];
  const rows = ordered.slice(0, MOST_TROUBLED).map((numbers) => {
    const rank = ranks[numbers[0]];
    return h(
      "tr",
      { class: "dw-troubled", "data-rank": numbers[0] },
      h("td", { class: "dw-alike" }, runLinks(numbers, show)),
      h("td", { class: "dw-nowrap" }, stateTag(rank.state)),
      h("td", { class: "dw-number" }, rank.step ?? ""),
      h("td", { class: "dw-number dw-nowrap" }, rank.age ? say("{time} ago", { time: rank.age }) : ""),
      h("td", null, prose(rank.note ?? ""), rank.waits ? h("div", { class: "dw-soft" }, say("in {collective}", { collective: rank.waits })) : ""),
    );
  });
  const more = ordered.slice(MOST_TROUBLED).reduce((sum, numbers) => sum + numbers.length, 0);
  return [table(say("ranks that did not answer"), head, rows), more ? h("p", { class: "dw-soft" }, say("… and {count} more", { count: more })) : ""];
}

// `0–7, 12`: a button for each run of numbers, which shows its first rank.
function runLinks(numbers, show) {
  /** @type {number[][]} */
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  const links = runs.slice(0, MOST_RUNS).map(([first, last]) => h("button", { class: "dw-link", type: "button", onclick: () => show(first) }, first === last ? first : `${first}–${last}`));
  return [...links.flatMap((link, at) => (at ? [", ", link] : [link])), runs.length > MOST_RUNS ? h("span", { class: "dw-soft" }, ` ${say("of {count} ranks", { count: numbers.length })}`) : ""];
}

// Least, usual and most of each quantity, and the rank that is far from all others.
export function memoryTable({ spans }, show) {
  if (!spans.length) return "";
  const rank = (number) => h("button", { class: "dw-link", type: "button", onclick: () => show(number) }, say("rank {number}", { number }));
  const cell = ([size, number]) => h("td", { class: "dw-number" }, size, " ", h("span", { class: "dw-soft" }, rank(number)));
  const rows = spans.map((span) =>
    h(
      "tr",
      { class: "dw-span" },
      h("td", null, say(span.name)),
      cell(span.least),
      h("td", { class: "dw-number" }, span.median),
      cell(span.most),
      h("td", { class: "dw-spread-bar" }, bar(span.share)),
      h("td", null, span.outlier === null ? "" : h("b", { class: "dw-outlier" }, say("outlier:"), " ", rank(span.outlier))),
    ),
  );
  return table(say("memory of the ranks"), [[say("for each rank")], [say("min"), "dw-number"], [say("median"), "dw-number"], [say("max"), "dw-number"], [""], [""]], rows);
}

// From the least to the most, with a mark at the median; the axis begins at nothing.
function bar([least, median, most]) {
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  return h("span", { class: "dw-range", "aria-hidden": "true" }, h("span", { style: `left:${percent(least)};width:max(2px, ${percent(most - least)})` }), h("i", { style: `left:${percent(median)}` }));
}

// A row for each module, a column for each kind of ranks that the filter left.
export class PlacementTable {
  constructor() {
    this.open = new Set();
    this.el = h("div", { class: "dw-placements" });
  }

  show(content, kept) {
    const { modules, columns, holdings, more } = content;
    const meant = ([, , runs]) => !kept || runs.some(([first, last]) => [...kept].some((number) => number >= first && number <= last));
    const shown = columns.slice(0, modules[0]?.held.length ?? 0).flatMap((column, at) => (meant(column) ? [at] : []));
    if (!modules.length) return this.el.replaceChildren(h("p", { class: "dw-empty" }, say("No rank reported its tensors. Press Ask again.")));
    const head = h("tr", null, h("th", { scope: "col" }, say("module")), shown.map((at) => h("th", { scope: "col", class: "dw-column" }, h("span", { class: "dw-kind-mark", style: `--dw-hue:${HUES.accelerators[at % HUES.accelerators.length]}` }, letterOf(at)), " ", columns[at][0], h("div", { class: "dw-soft" }, columns[at][1]))));
    const rows = modules.slice(0, MOST_ROWS).map((module) => this.row(content, module, shown));
    const notes = [modules.length > MOST_ROWS ? sayCount("… and {count} more module", "… and {count} more modules", modules.length - MOST_ROWS) : "", more ? sayCount("… and {count} more distinct placement", "… and {count} more distinct placements", more) : "", shown.length ? "" : say("No rank in the filter reported its tensors. Clear the filter.")];
    this.el.replaceChildren(
      h("div", { class: "dw-scroll-x dw-scroll-y dw-tall", role: "region", tabindex: "0", "aria-label": say("placements") }, h("table", { class: "dw-table dw-placement", "aria-label": say("placements") }, h("thead", null, head), h("tbody", null, rows))),
      ...notes.filter(Boolean).map((text) => h("p", { class: "dw-soft" }, text)),
    );
    this.holdings = holdings;
  }

  row(content, module, shown) {
    const { name, path, kind, wrapper, depth, times, held } = module;
    const places = shown.map((at) => held[at]);
    const differs = new Set(places).size > 1;
    const hasTensors = places.some((place) => place >= 0 && content.holdings[place][2].length);
    const detail = h("tr", { class: "dw-held", hidden: !this.open.has(path) });
    const toggle = () => {
      const open = detail.hidden;
      detail.hidden = !open;
      if (open) this.open.add(path);
      else this.open.delete(path);
      button.setAttribute("aria-expanded", String(open));
      if (open && !detail.childElementCount) fill();
    };
    const fill = () => detail.append(h("td", null), ...places.map((place) => h("td", null, place < 0 ? "" : tensors(content.holdings[place][2]))));
    const button = h("button", { class: "dw-twist", type: "button", "aria-expanded": String(this.open.has(path)), "aria-label": say("tensors of {path}", { path: path || say("the model itself") }), onclick: toggle }, "");
    if (this.open.has(path)) fill();
    const row = h(
      "tr",
      { class: `dw-module-row${differs ? " dw-differs" : ""}`, "data-path": path },
      h("th", { scope: "row", title: path, style: `--dw-depth:${depth}` }, hasTensors ? button : h("span", { class: "dw-twist" }), name || say("the model itself"), h("span", { class: "dw-soft" }, ` ${kind}`), times > 1 ? h("span", { class: "dw-tag" }, say("{count} identical", { count: times })) : "", wrapper ? h("span", { class: "dw-tag" }, wrapper) : ""),
      places.map((place) => holding(place, content.holdings)),
    );
    return [row, detail];
  }
}

function holding(place, holdings) {
  if (place < 0) return h("td", { class: "dw-soft" }, say("missing"));
  const [words, size, , empty] = holdings[place];
  return h("td", { class: empty ? "dw-nothing" : null }, h("span", null, words), size ? h("div", { class: "dw-soft dw-nowrap" }, size, empty ? h("b", null, ` – ${say("nothing here")}`) : "") : "");
}

function tensors(list) {
  return h("ul", { class: "dw-tensors" }, list.map(([name, type, placed, note]) => h("li", null, h("code", null, name), " ", h("span", { class: "dw-mono" }, type), h("span", { class: "dw-soft" }, ` ${[placed, note].filter(Boolean).join(" · ")}`))));
}
