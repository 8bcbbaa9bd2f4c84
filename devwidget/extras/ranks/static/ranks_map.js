// The map: a cell for each rank where it stands in the mesh, coloured by state, by memory or by placement.
import { h } from "../../../panel/static/dom.js";
import { inRow, say, word } from "../../../panel/static/words.js";

export const SIGNS = { answered: "", hung: "·", busy: "…", stopped: "‖", stale: "~", dead: "×", raised: "⚡", terminated: "–", ended: "✓", unknown: "?" };
export const MEANINGS = {
  answered: word("answered at once"),
  hung: word("waits in a collective that others have not reached, or for too long"),
  busy: word("is alive but did not answer in time"),
  stopped: word("was stopped by a signal"),
  stale: word("its file is much older than the others"),
  dead: word("its process ended without a final report"),
  raised: word("ended with an exception"),
  terminated: word("ended by a signal"),
  ended: word("ended without an exception"),
  unknown: word("no data from it"),
};
const LOOKS = [word("state"), word("memory"), word("placement")];
const EVEN = 0.02; // memory that differs by less is of one colour
let maps = 0;

export const letterOf = (column) => (column < 26 ? String.fromCharCode(65 + column) : `${column + 1}`);

export class RanksMap {
  constructor(chosen) {
    this.chosen = chosen; // called with the number of a rank
    this.look = "state";
    this.id = `dw-ranks-${maps++}`;
    this.cells = [];
    this.active = 0;
    this.grid = h("div", { class: "dw-map-grid", role: "grid", tabindex: "0", "aria-label": say("ranks") });
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("click", (event) => {
      const cell = event.target instanceof Element ? event.target.closest("[data-rank]") : null;
      if (cell instanceof HTMLElement) this.choose(Number(cell.dataset.rank));
    });
    this.looks = LOOKS.map((look) => h("button", { class: "dw-plain dw-look", type: "button", "aria-pressed": String(look === this.look), onclick: () => this.colour(look) }, say(look)));
    this.key_ = h("div", { class: "dw-legend dw-map-key" });
    this.el = h("div", { class: "dw-map-of-ranks" }, h("div", { class: "dw-looks" }, h("span", { class: "dw-soft" }, say("colour by")), this.looks), h("div", { class: "dw-scroll-x" }, this.grid), this.key_);
  }

  show(content) {
    this.content = content;
    const { lanes } = content;
    const across = Math.max(1, ...lanes.map((lane) => lane.length));
    this.lanes = lanes;
    this.across = across;
    this.grid.style.setProperty("--dw-across", String(across));
    this.grid.style.setProperty("--dw-longest-name", String(Math.max(...lanes.map((lane) => laneName(content, lane).length))));
    this.grid.classList.toggle("dw-many", lanes.length > 16 || across > 32);
    this.cells = [];
    const rows = lanes.map((lane) => {
      const cells = lane.map((number) => (this.cells[number] = h("span", { class: "dw-rank", role: "gridcell", id: `${this.id}-${number}`, "data-rank": number })));
      const own = lane.filter((number) => content.named?.includes(number));
      const said = own.length ? h("span", { class: "dw-lane-named", role: "gridcell" }, own.length > 3 ? say("{count} ranks", { count: own.length }) : own.map((number) => say("rank {number}", { number })).join(", ")) : "";
      return h("div", { class: `dw-lane${own.length ? " dw-lane-odd" : ""}`, role: "row" }, h("span", { class: "dw-lane-name", role: "rowheader" }, laneName(content, lane)), cells, said);
    });
    const [name, size] = acrossAxis(content, across);
    const head = h("div", { class: "dw-lane dw-lane-head", "aria-hidden": "true" }, h("span", { class: "dw-lane-name" }), h("span", { class: "dw-across" }, `${name} 0 – ${size - 1} →`));
    this.grid.replaceChildren(head, ...rows);
    this.paint();
  }

  colour(look) {
    this.look = look;
    this.looks.forEach((button, at) => button.setAttribute("aria-pressed", String(LOOKS[at] === look)));
    this.paint();
  }

  // Ranks that a filter left out are faint.
  filter(kept) {
    this.kept = kept;
    this.cells.forEach((cell, number) => cell.classList.toggle("dw-faint", Boolean(kept) && !kept.has(number)));
  }

  paint() {
    const { ranks, columns } = this.content;
    const sizes = ranks.map((rank) => rank.taken).filter((size) => size !== undefined);
    const [low, high] = [Math.min(...sizes), Math.max(...sizes)];
    this.even = high - low < EVEN * high;
    const share = (size) => (this.even ? 0.4 : (size - low) / (high - low));
    this.cells.forEach((cell, number) => {
      const rank = ranks[number];
      const kind = this.look === "state" ? `dw-state-${rank.state}` : this.look === "memory" && rank.taken !== undefined ? "dw-heat" : this.look === "placement" && rank.column !== undefined ? "dw-kind-of" : "dw-unknown";
      const dark = this.look === "memory" && rank.taken !== undefined && share(rank.taken) > 0.55;
      const named = this.look === "state" && this.content.named?.includes(number);
      cell.className = `dw-rank ${named ? "dw-named" : kind}${dark ? " dw-deep" : ""}`;
      cell.style.cssText = this.look === "memory" ? `--dw-share:${Math.round(8 + 82 * share(rank.taken ?? low))}%` : this.look === "placement" && rank.column !== undefined ? `--dw-hue:${HUES.accelerators[rank.column % HUES.accelerators.length]}` : "";
      cell.textContent = named && rank.state === "answered" ? "!" : SIGNS[rank.state] || (this.look === "placement" && rank.column !== undefined ? letterOf(rank.column) : "");
      const label = inRow([say("rank {number}", { number }), say(rank.state), rank.step !== undefined && say("step {step}", rank), rank.memory, columns[rank.column]?.[0] && say("same placement as {ranks}", { ranks: columns[rank.column][0] })]);
      cell.setAttribute("aria-label", label);
      cell.title = label;
    });
    this.filter(this.kept);
    this.select(this.active);
    this.key_.replaceChildren(...this.legend());
  }

  legend() {
    const { states, spans, columns } = this.content;
    const item = (sample, text, title) => h("span", { title }, sample, text);
    if (this.look === "state") return [...this.namedKey(item), ...states.map(([state, count]) => item(h("i", { class: `dw-state-${state}`, "aria-hidden": "true" }, SIGNS[state]), `${count} ${say(state)}`, say(MEANINGS[state])))];
    if (this.look === "memory") {
      const span = spans.find((each) => each.name === "allocated");
      if (span && this.even) return [item(h("i", { class: "dw-heat", style: "--dw-share:41%" }), say("{size} on each rank, within {percent} %", { size: span.median, percent: 100 * EVEN }))];
      return span ? [item(h("i", { class: "dw-heat", style: "--dw-share:8%" }), say("{size}, rank {number}", { size: span.least[0], number: span.least[1] })), item(h("i", { class: "dw-heat", style: "--dw-share:90%" }), say("{size}, rank {number}", { size: span.most[0], number: span.most[1] }))] : [h("span", null, say("no rank reported its memory"))];
    }
    const some = columns.slice(0, 12).map(([words], at) => item(h("i", { class: "dw-kind-of", style: `--dw-hue:${HUES.accelerators[at % HUES.accelerators.length]}` }, letterOf(at)), words));
    return columns.length > 12 ? [...some, h("span", null, say("and {count} more", { count: columns.length - 12 }))] : some;
  }

  namedKey(item) {
    const { named } = this.content;
    return named?.length ? [item(h("i", { class: "dw-named", "aria-hidden": "true" }, "!"), `${named.length} ${say("named in findings")}`, say("a finding says that it is missing, has ended, or blocks the others"))] : [];
  }

  select(number) {
    this.cells[this.active]?.removeAttribute("aria-selected");
    this.active = number;
    this.cells[number]?.setAttribute("aria-selected", "true");
    this.grid.setAttribute("aria-activedescendant", `${this.id}-${number}`);
  }

  choose(number) {
    this.select(number);
    this.chosen(number);
  }

  key(event) {
    const lane = this.lanes.findIndex((numbers) => numbers.includes(this.active));
    const at = this.lanes[lane]?.indexOf(this.active) ?? 0;
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -at], End: [0, Infinity] };
    const [down, right] = moves[event.key] ?? [];
    if (down === undefined) return;
    const numbers = this.lanes[Math.min(Math.max(lane + down, 0), this.lanes.length - 1)];
    this.choose(numbers[Math.min(Math.max(at + right, 0), numbers.length - 1)]);
    event.preventDefault();
  }
}

// Along what the ranks of a row differ: an axis of the mesh, their place on their machine, or their number.
function acrossAxis({ ranks, axes, lanes, lane_names }, across) {
  const differ = axes.filter((_, at) => new Set(lanes[0].map((number) => ranks[number].at[at])).size > 1);
  if (axes.length > 1 && differ.length === 1 && differ[0][1] === across) return differ[0];
  return lane_names?.some(Boolean) ? [say("position on the machine"), across] : [say("ranks"), ranks.length];
}

// What the ranks of a lane have in common: `pp 0 · tp 3`; its machine; of one machine and one axis the first number.
function laneName({ ranks, axes, lanes, lane_names }, lane) {
  const machine = lane_names?.[lanes.indexOf(lane)] ?? "";
  if (axes.length < 2 || lanes.flat().length !== axes.reduce((product, [, size]) => product * size, 1)) return machine || (lanes.length > 1 ? (lane_names?.some(Boolean) ? `${lane[0]}–${lane[lane.length - 1]}` : String(lane[0])) : "");
  const common = axes.flatMap(([name], at) => (lane.every((number) => ranks[number].at[at] === ranks[lane[0]].at[at]) && axes[at][1] > 1 ? [`${name} ${ranks[lane[0]].at[at]}`] : []));
  return [machine, ...common].filter(Boolean).join(" · ");
}
