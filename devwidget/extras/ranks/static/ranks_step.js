// A traced step: a lane for each rank with its modules, and between the lanes what ranks begin together.
import { h, prose } from "../../../panel/static/dom.js";
import { table } from "../../../panel/static/tables.js";
import { say } from "../../../panel/static/words.js";

const UNIT_PX = 13; // at least, for a collective or a module without anything inside
const PHASE_PX = 14; // of a lane, for the names of phases
const STRIP_PX = PHASE_PX + 18; // and with the marks of collectives
const LEVEL_PX = 17;
const GAP_PX = 8;
const NS = "http://www.w3.org/2000/svg";
const STEP_MARKS = { all_gather: ["gather", "G"], gather: ["gather", "G"], reduce_scatter: ["scatter", "S"], scatter: ["scatter", "S"], all_reduce: ["reduce", "R"], reduce: ["reduce", "R"], message: ["message", "M"], broadcast: ["other", "B"], barrier: ["other", "|"], all_to_all: ["other", "A"] };
const markOf = (kind) => STEP_MARKS[kind] ?? ["other", "?"];

function svg(tag, attributes) {
  const el = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, value);
  return el;
}

export class StepView {
  constructor() {
    this.said = h("p", { class: "dw-step-said", role: "status", "aria-live": "polite" });
    this.el = h("section", { class: "dw-step" });
    this.el.hidden = true;
    this.tops = []; // where each lane begins, in pixels
    this.rows = []; // of the table
    this.active = -1; // the collective that is told of
    this.el.addEventListener("pointerover", (event) => this.under(event));
    this.el.addEventListener("click", (event) => this.under(event));
  }

  show({ step }, kept) {
    this.el.hidden = !step;
    if (!step) return;
    const fresh = step !== this.step;
    this.step = step;
    if (fresh) this.draw();
    const out = ({ ranks }) => kept && !ranks.some(([first, last]) => [...kept].some((number) => number >= first && number <= last));
    this.lanes.forEach((lane, at) => lane.classList.toggle("dw-faint", Boolean(out(step.lanes[at]))));
  }

  draw() {
    const { lanes, links, rows, units, title, left_out } = this.step;
    this.active = -1;
    this.tops = [];
    let height = 0;
    for (const lane of lanes) {
      this.tops.push(height);
      height += STRIP_PX + LEVEL_PX * Math.max(1, ...lane.boxes.map(([, , level]) => level + 1)) + GAP_PX;
    }
    this.lanes = lanes.map((lane, at) => this.lane(lane, (this.tops[at + 1] ?? height) - this.tops[at] - GAP_PX));
    const names = lanes.map((lane, at) => h("div", { class: "dw-step-name", style: `top:${this.tops[at]}px` }, lane.name));
    const lines = svg("svg", { viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none", class: "dw-step-lines", style: `height:${height}px`, "aria-hidden": "true" });
    this.marks = links.map(() => []);
    this.paths = links.map((link, at) => this.line(link, at));
    lines.append(...this.paths);
    const dots = links.flatMap((link, at) => this.dots(link, at));
    this.chart = h("div", { class: "dw-step-chart", tabindex: "0", role: "application", "aria-roledescription": say("lanes"), "aria-label": say("{title}. Arrow keys go from collective to collective.", { title }), style: `height:${height}px;min-width:${Math.round(units * UNIT_PX)}px` }, lines, this.lanes, dots);
    this.chart.addEventListener("keydown", (event) => this.key(event));
    this.order = links.map((_, at) => at).sort((a, b) => links[a][0][0][1] - links[b][0][0][1]);
    this.said.textContent = links.length ? say("Point at a collective, or walk with the arrow keys.") : say("No collective was begun.");
    this.el.replaceChildren(
      h("h4", null, say("One step")),
      h("p", { class: "dw-soft" }, title),
      this.legend(),
      h("div", { class: "dw-step-lanes" }, h("div", { class: "dw-step-names", "aria-hidden": "true", style: `height:${height}px` }, names), h("div", { class: "dw-scroll-x" }, this.chart)),
      this.said,
      ...left_out.map((text) => h("p", { class: "dw-soft" }, text)),
      rows.length ? this.table() : "",
    );
  }

  lane({ boxes, bands }, height) {
    const place = (left, width) => `left:${left / 10}%;width:${width / 10}%`;
    return h(
      "div",
      { class: "dw-step-lane", style: `height:${height}px` },
      bands.map(([phase, left, width, said]) => h("span", { class: `dw-step-band dw-phase-${phase}`, style: place(left, width), title: said }, said)),
      boxes.map(([left, width, level, path, kind]) => h("span", { class: "dw-step-box", style: `${place(left, width)};top:${STRIP_PX + level * LEVEL_PX}px`, title: `${path} (${kind})` }, path.split(".").pop())),
    );
  }

  line([ends, row, share, , odd], at) {
    const points = ends.map(([lane, x]) => `${x} ${this.tops[lane] + (PHASE_PX + STRIP_PX) / 2}`);
    const [kind] = markOf(this.step.rows[row][0]);
    return svg("path", { d: `M${points.join("L")}`, "data-link": at, class: `dw-step-line dw-c-${odd ? "odd" : kind}`, "stroke-width": (1 + 3.5 * share).toFixed(1) });
  }

  dots([ends, row, , words, odd], at) {
    const [kind, letter] = markOf(this.step.rows[row][0]);
    this.marks[at] = ends.map(([lane, x]) => h("span", { class: `dw-step-dot dw-c-${odd ? "odd" : kind}`, "data-link": at, title: words, style: `left:${x / 10}%;top:${this.tops[lane] + (PHASE_PX + STRIP_PX) / 2}px` }, odd ? "!" : letter));
    return this.marks[at];
  }

  legend() {
    const kinds = [...new Set(this.step.rows.map(([kind]) => kind))];
    const item = (kind) => h("span", null, h("i", { class: `dw-step-key dw-c-${markOf(kind)[0]}`, "aria-hidden": "true" }, markOf(kind)[1]), kind);
    const odd = this.step.links.some((link) => link[4]) ? h("span", null, h("i", { class: "dw-step-key dw-c-odd", "aria-hidden": "true" }, "!"), say("ranks do not agree")) : "";
    return h("div", { class: "dw-legend" }, kinds.map(item), odd, kinds.length ? h("span", null, say("a line is as thick as its bytes")) : "");
  }

  table() {
    const head = [[say("collective")], [say("times"), "dw-number"], [say("bytes"), "dw-number"], [say("asked by")], [say("group")], [say("line")]];
    this.rows = this.step.rows.map(([kind, count, bytes, cause, group, place, code, difference], at) =>
      h(
        "tr",
        { "data-row": at, class: difference ? "dw-differs" : null },
        h("td", { class: "dw-nowrap" }, h("i", { class: `dw-step-key dw-c-${difference ? "odd" : markOf(kind)[0]}`, "aria-hidden": "true" }, difference ? "!" : markOf(kind)[1]), kind),
        h("td", { class: "dw-number" }, count),
        h("td", { class: "dw-number dw-nowrap", title: say("that each rank gives") }, bytes),
        h("td", null, cause),
        h("td", null, group, difference ? h("div", { class: "dw-outlier" }, prose(difference)) : ""),
        h("td", { class: "dw-place" }, h("span", { class: "dw-nowrap" }, place), code ? h("code", { class: "dw-code-line", title: code }, code) : ""),
      ),
    );
    return table(say("collectives by line"), head, this.rows);
  }

  under(event) {
    const target = event.target instanceof Element ? event.target.closest("[data-link], [data-row]") : null;
    if (!(target instanceof HTMLElement || target instanceof SVGElement)) return;
    if (target.dataset.link !== undefined) this.choose(Number(target.dataset.link));
    else this.light((link) => link[1] === Number(target.dataset.row), Number(target.dataset.row));
  }

  choose(at) {
    this.active = at;
    const [, row, , words] = this.step.links[at];
    const [, , , cause, group, place, , difference] = this.step.rows[row];
    this.said.replaceChildren(h("b", null, words), ` · ${[cause, group, place].filter(Boolean).join(" · ")}`, difference ? h("span", { class: "dw-outlier" }, ` · ${difference}`) : "");
    this.light((_, link) => link === at, row);
  }

  // The collectives that are meant stand out, and so does their row.
  light(meant, row) {
    this.step.links.forEach((link, at) => {
      const lit = meant(link, at);
      this.paths[at].classList.toggle("dw-lit", lit);
      this.marks[at].forEach((mark) => mark.classList.toggle("dw-lit", lit));
    });
    this.rows.forEach((each, at) => each.classList.toggle("dw-lit-row", at === row));
  }

  key(event) {
    const here = this.order.indexOf(this.active);
    const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: this.order.length - 1 };
    const to = moves[event.key];
    if (to === undefined || !this.order.length) return;
    const at = this.order[Math.min(Math.max(to, 0), this.order.length - 1)];
    this.choose(at);
    this.marks[at][0]?.scrollIntoView({ block: "nearest", inline: "nearest" });
    event.preventDefault();
  }
}
