// The virtualised tree table: only the rows in sight are in the page, whatever the size of the model.
import { chip, h } from "./dom.js";
import { filterRows } from "./filter.js";
import { say, sayCount } from "./words.js";

const ROW = 24;
const SPARE = 24;
const MOST_OPEN = 60;
const WIDTHS = ["wide", "narrow", "narrowest"]; // of the table, as `tree.css` has them
const SEVERITY = ["", "info", "warning", "error"];
const SIGN = { info: "ℹ", warning: "▲", error: "✖" };
let tables = 0;

// A number with its noun, which a narrow table says to screen readers alone.
function numbered(number, text) {
  const end = text.indexOf(String(number)) + String(number).length;
  return [text.slice(0, end), h("span", { class: "dw-noun" }, text.slice(end))];
}

// A cell's classes say what it is, and at which widths of the table it is left out.
const cellOf = ({ key, cell, widths }) => ({ class: ["dw-cell", `dw-${key}`, `dw-is-${cell}`, ...WIDTHS.filter((_, at) => !widths[at]).map((width) => `dw-not-${width}`)].join(" ") });

export class TreeView {
  constructor(opened, chosen) {
    this.id = `dw-tree-${tables++}`;
    this.opened = opened; // called with a row: show its detail
    this.chosen = chosen;
    this.filterText = "";
    this.sort = null;
    this.active = 0; // place in `shown`
    this.painted = [0, 0]; // first of the rows that are in the page, and the one after the last
    this.met = false; // whether the user has clicked or used the keyboard: only then a row is drawn as selected
    this.unfolded = new Set(); // first rows of identical blocks that are all shown
    this.typed = "";
    this.head = h("div", { class: "dw-row dw-head", role: "row", "aria-rowindex": "1" });
    this.body = h("div", { class: "dw-body", role: "rowgroup" });
    this.grid = h(
      "div",
      { class: "dw-grid", role: "treegrid", tabindex: "0", "aria-label": say("modules"), "aria-readonly": "true", onscroll: () => this.scrolled() },
      h("div", { role: "rowgroup", class: "dw-head-group" }, this.head),
      this.body,
    );
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.click(event));
    this.grid.addEventListener("focus", () => this.grid.matches(":focus-visible") && this.meet()); // a mouse comes by its click
    this.live = h("span", { class: "dw-hidden", role: "status" });
    this.el = h("div", { class: "dw-tree" }, this.grid, this.live);
    this.watcher = new ResizeObserver(() => this.paint());
    this.watcher.observe(this.grid);
  }

  // The columns that came with the table: their heads, and their widths as tracks of a grid.
  showHeads(heads) {
    this.heads = heads;
    this.head.replaceChildren(...heads.map((head) => this.headCell(head)));
    WIDTHS.forEach((width, at) => this.el.style.setProperty(`--dw-${width}`, heads.map((head) => head.widths[at]).join(" ")));
  }

  headCell(head) {
    const sort = () => this.sortBy(head);
    const { class: name } = cellOf(head);
    return h("div", { class: name, role: "columnheader", "aria-sort": "none", "data-column": head.key }, h("button", { type: "button", tabindex: "-1", onclick: sort }, head.title));
  }

  // New rows; rows that were open stay open, found again by their path.
  show(rows) {
    const before = this.rows;
    const openPaths = before && new Set(this.openRows().map((row) => before.pathOf(row)));
    const unfolded = before && [...this.unfolded].map((row) => before.pathOf(row));
    const activePath = before && this.shown.length ? before.pathOf(this.shown[this.active]) : "";
    this.rows = rows;
    if (JSON.stringify(rows.heads.map(({ key }) => key)) !== JSON.stringify(this.heads?.map(({ key }) => key))) this.showHeads(rows.heads);
    this.heads = rows.heads;
    this.open = rows.firstOpen(MOST_OPEN);
    if (before) for (let row = 0; row < rows.count; row++) this.open[row] = rows.hasChildren(row) && openPaths.has(rows.pathOf(row)) ? 1 : 0;
    this.unfolded = new Set(unfolded?.map((path) => rows.rowOf(path)));
    this.update();
    if (activePath) this.active = Math.max(0, this.shown.findIndex((row) => rows.pathOf(row) === activePath));
    this.paint();
  }

  openRows() {
    const rows = [];
    for (let row = 0; row < this.open.length; row++) if (this.open[row]) rows.push(row);
    return rows;
  }

  filter(text) {
    const row = this.shown?.[this.active];
    this.filterText = text;
    this.update(row);
    if (text) this.live.textContent = sayCount("{count} row matches", "{count} rows match", this.found?.count ?? 0);
  }

  sortBy({ key, cell }) {
    const [column, descending] = this.sort ?? [];
    const first = cell === "amount" || cell === "notes"; // largest first
    this.sort = column !== key ? [key, first] : descending === first ? [key, !first] : null;
    for (const cell of this.head.children) {
      const mine = this.sort?.[0] === cell.dataset.column;
      cell.setAttribute("aria-sort", !mine ? "none" : this.sort[1] ? "descending" : "ascending");
    }
    this.update(this.shown[this.active]);
  }

  openAll(open) {
    const row = this.shown[this.active];
    this.open.fill(0);
    this.unfolded = new Set(open ? Object.keys(this.rows.folds).map(Number) : []);
    for (let at = 0; at < this.rows.count; at++) if (this.rows.hasChildren(at)) this.open[at] = open || at === 0 ? 1 : 0;
    this.update(row);
  }

  toggle(row, open = !this.open[row]) {
    if (!this.rows.hasChildren(row)) return;
    this.open[row] = open ? 1 : 0;
    this.update(row);
  }

  fold(row) {
    if (!this.rows.folds[row]) return;
    if (!this.unfolded.delete(row)) this.unfolded.add(row);
    this.update(row);
  }

  isFolded(row) {
    return Boolean(this.rows.folds[row]) && !this.unfolded.has(row) && !this.found && !this.sort;
  }

  meet() {
    if (this.met) return;
    this.met = true;
    this.paint();
  }

  // Jump to a row wherever it hides.
  reveal(row) {
    if (row < 0 || row >= this.rows.count) return;
    this.met = true;
    let hidden = Boolean(this.found);
    for (let at = row; at >= 0; at = this.rows.parent[at]) {
      const first = this.rows.foldOver(at);
      hidden ||= (at !== row && !this.open[at]) || (first !== undefined && !this.unfolded.has(first));
      if (at !== row) this.open[at] = 1;
      if (first !== undefined) this.unfolded.add(first);
    }
    if (hidden) this.update(row);
    else this.active = this.shown.indexOf(row);
    if (this.shown[this.active] !== row) return;
    this.grid.scrollTop = Math.max(0, this.active * ROW - this.grid.clientHeight / 2);
    this.paint();
    this.chosen?.(row);
  }

  update(keep) {
    this.found = filterRows(this.rows, this.filterText);
    const order = this.sort && this.rows.orderBy(...this.sort);
    this.shown = this.rows.visible(this.open, this.found?.kept, order, this.unfolded);
    const place = keep === undefined ? -1 : this.shown.indexOf(keep);
    this.active = place >= 0 ? place : Math.min(this.active, Math.max(0, this.shown.length - 1));
    this.grid.setAttribute("aria-rowcount", this.shown.length + 1);
    this.body.style.height = `${(this.shown.length || 2) * ROW}px`; // two for the words that say why there is none
    this.paint();
  }

  // All rows in sight anew: something about them has changed.
  paint() {
    if (!this.shown) return;
    this.deviceWidth = this.head.querySelector(".dw-is-devices")?.offsetWidth || 220; // asked here alone: it makes the page lay itself out
    this.body.replaceChildren();
    this.painted = [0, 0];
    this.fill();
    if (!this.shown.length) this.body.append(h("div", { class: "dw-empty", role: "row" }, h("span", { role: "gridcell" }, this.filterText ? say("No row matches the filter. Clear it to see all rows.") : say("No modules."))));
  }

  // While the table scrolls rows that are painted stay; a jump paints those in sight, and the spare ones when it rests.
  scrolled() {
    if (!this.shown?.length) return;
    const far = Math.abs(this.grid.scrollTop - this.top) > this.grid.clientHeight;
    this.fill(far ? 2 : SPARE);
    clearTimeout(this.rest);
    if (far) this.rest = setTimeout(() => this.fill(), 100);
  }

  fill(spare = SPARE) {
    this.top = this.grid.scrollTop;
    const first = Math.max(0, Math.floor(this.top / ROW) - spare);
    const stop = Math.min(this.shown.length, Math.ceil((this.top + (this.grid.clientHeight || 480)) / ROW) + spare);
    const [from, to] = this.painted;
    const rows = (start, end) => Array.from({ length: Math.max(0, end - start) }, (_, at) => this.rowView(start + at));
    if (first >= to || stop <= from) this.body.replaceChildren(...rows(first, stop));
    else {
      for (let gone = from; gone < Math.min(first, to); gone++) this.body.firstChild.remove();
      for (let gone = Math.max(stop, from); gone < to; gone++) this.body.lastChild.remove();
      this.body.prepend(...rows(first, from));
      this.body.append(...rows(to, stop));
    }
    this.painted = [first, stop];
    const active = this.shown[this.active];
    if (active !== undefined && this.active >= first && this.active < stop) this.grid.setAttribute("aria-activedescendant", `${this.id}-${active}`);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  rowView(place) {
    const { rows } = this;
    const row = this.shown[place];
    const mark = rows.marks[row];
    const severity = SEVERITY[mark?.[4] ?? 0];
    const parent = rows.hasChildren(row);
    const dim = this.found && !this.found.hits[row];
    return h(
      "div",
      {
        class: `dw-row${severity ? ` dw-row-${severity}` : mark?.[0] ? " dw-row-hop" : ""}${dim ? " dw-dim" : ""}`,
        role: "row",
        id: `${this.id}-${row}`,
        style: `top:${place * ROW}px`,
        "data-path": rows.pathOf(row),
        "data-row": row,
        "data-severity": severity || null,
        "aria-level": rows.depth[row] + 1,
        "aria-rowindex": place + 2,
        "aria-expanded": parent ? String(Boolean(this.open[row] || this.found)) : null,
        "aria-selected": String(this.met && place === this.active),
      },
      this.heads.map((head) => this.cellFor(head, row, mark, parent)),
    );
  }

  cellFor(head, row, mark, parent) {
    if (head.cell === "name") return this.nameCell(row, parent);
    if (head.cell === "devices") return this.cell(head, this.deviceChips(row));
    if (head.cell === "flow") return this.flowCell(head, ...this.rows.flowOf(row));
    if (head.cell === "notes") return this.cell(head, this.notes(row, mark, parent));
    return this.cell(head, this.rows.textOf(head, row));
  }

  cell(head, content) {
    return h("div", { ...cellOf(head), role: "gridcell", title: typeof content === "string" ? content : null }, content);
  }

  // Chips where data leaves on another device than it came in on; a quiet word where it stays.
  flowCell(head, into, out) {
    const text = [into, out].map((side) => side.join(" ") || "–").join(" → ");
    const stays = into.join() === out.join();
    const side = (devices) => (devices.length > 2 ? [h("span", { class: "dw-soft" }, numbered(devices.length, say("{count} devices", { count: devices.length })))] : devices.map((device) => chip(device)));
    const cell = this.cell(head, stays ? into.join(" ") : [...side(into), " → ", ...side(out)]);
    if (into.length + out.length > 2) cell.classList.add("dw-short"); // else names would be cut
    if (into.length || out.length) cell.title = text;
    if (!stays) cell.classList.add("dw-moves");
    return cell;
  }

  nameCell(row, parent) {
    const { rows } = this;
    const twist = h("span", { class: `dw-twist${parent ? (this.open[row] || this.found ? " dw-open" : "") : " dw-leaf"}`, "aria-hidden": "true" });
    const count = rows.folds[row];
    const folded = this.isFolded(row);
    const kind = row === 0 || rows.isAttribute(row) ? "" : folded ? say("{count} × {kind}, identical", { count, kind: rows.classOf(row) }) : rows.classOf(row);
    return h(
      "div",
      { class: "dw-cell dw-module", role: "rowheader", style: `padding-left:${8 + rows.depth[row] * 14}px`, title: folded ? say("{path} and {count} identical blocks", { path: rows.pathOf(row), count: count - 1 }) : rows.pathOf(row) || rows.nameOf(row) },
      twist,
      h("span", { class: "dw-name" }, folded ? `${rows.nameOf(row)}–${rows.nameOf(rows.lastOfFold(row))}` : rows.nameOf(row)),
      kind && h("span", { class: folded ? "dw-class dw-repeats" : "dw-class" }, kind),
    );
  }

  deviceChips(row) {
    const devices = this.rows.devicesOf(row);
    const room = Math.max(1, Math.floor((this.deviceWidth - 14) / 71));
    const most = devices.length > room ? Math.max(1, room - (this.deviceWidth - 14 - room * 71 < 20 ? 1 : 0)) : room;
    const chips = devices.slice(0, most).map((device) => chip(device));
    return devices.length > most ? [...chips, h("span", { class: "dw-soft", title: devices.join(" ") }, `+${devices.length - most}`)] : chips;
  }

  notes(row, mark, parent) {
    const parts = [];
    const shut = parent && !this.open[row] && !this.found;
    if (mark) {
      const own = mark[2].length;
      const below = mark[3].filter((number) => !mark[2].includes(number)).length;
      if (own) parts.push(this.badge(SEVERITY[mark[4]], numbered(own, sayCount("{count} finding", "{count} findings", own))));
      if (below && (shut || !own)) parts.push(this.badge(SEVERITY[mark[5]], say("{count} below", { count: below }), !shut));
      const hops = shut ? mark[1] : mark[0];
      if (hops) parts.push(h("span", { class: "dw-hop" }, numbered(hops, sayCount("⇄ {count} hop", "⇄ {count} hops", hops))));
    }
    if (this.rows.isAttribute(row)) parts.push(h("span", { class: "dw-soft" }, say("unregistered")));
    const count = !this.found && !this.sort && this.rows.folds[row];
    if (count) parts.push(h("button", { class: "dw-link dw-fold", type: "button", tabindex: "-1", title: say("key: +") }, this.isFolded(row) ? say("unfold") : say("fold {count}", { count })));
    if (this.isFolded(row)) parts.push(h("span", { class: "dw-soft" }, say("sizes of one block")));
    const note = this.rows.notes[row];
    if (note) parts.push(h("span", { class: "dw-soft", title: note }, note));
    return parts;
  }

  badge(severity, text, quiet) {
    return h("span", { class: `dw-badge dw-${severity}${quiet ? " dw-quiet" : ""}` }, h("span", { "aria-hidden": "true" }, SIGN[severity]), " ", text);
  }

  click(event) {
    const line = event.target.closest("[data-row]");
    if (!line) return;
    const row = Number(line.dataset.row);
    this.active = this.shown.indexOf(row);
    this.met = true;
    if (event.target.closest(".dw-fold")) this.fold(row);
    else if (event.target.closest(".dw-twist")) this.toggle(row);
    else this.openRow(row);
    this.grid.focus({ preventScroll: true });
  }

  openRow(row) {
    this.paint();
    this.chosen?.(row);
    this.opened(row);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !this.shown.length) return;
    const row = this.shown[this.active];
    const page = Math.max(1, Math.floor(this.grid.clientHeight / ROW) - 2);
    const moves = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === "ArrowRight") this.right(row);
    else if (event.key === "ArrowLeft") this.left(row);
    else if (event.key === "Enter" || event.key === " ") this.openRow(row);
    else if (event.key === "*") this.openAll(true);
    else if (event.key === "+") this.fold(row);
    else if (event.key === "Escape") {
      if (!this.opened(null)) return;
      event.stopPropagation();
    } else if (event.key.length === 1) this.typeAhead(event.key);
    else return;
    event.preventDefault();
  }

  move(step) {
    this.active = Math.min(this.shown.length - 1, Math.max(0, this.active + step));
    const top = this.active * ROW;
    const room = this.grid.clientHeight - this.head.offsetHeight - ROW;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (top > this.grid.scrollTop + room) this.grid.scrollTop = top - room;
    this.paint();
    this.chosen?.(this.shown[this.active]);
  }

  right(row) {
    if (this.rows.hasChildren(row) && !this.open[row]) this.toggle(row, true);
    else if (this.rows.hasChildren(row)) this.move(1);
  }

  left(row) {
    if (this.open[row] && this.rows.hasChildren(row) && !this.found) this.toggle(row, false);
    else if (this.rows.parent[row] >= 0) this.move(this.shown.indexOf(this.rows.parent[row]) - this.active);
  }

  typeAhead(letter) {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => (this.typed = ""), 700);
    this.typed += letter.toLowerCase();
    const count = this.shown.length;
    const from = this.typed.length === 1 ? 1 : 0;
    for (let step = from; step < count + from; step++) {
      const place = (this.active + step) % count;
      if (!this.rows.nameOf(this.shown[place]).toLowerCase().startsWith(this.typed)) continue;
      this.move(place - this.active);
      return;
    }
  }

  close() {
    this.watcher.disconnect();
    clearTimeout(this.pause);
    clearTimeout(this.rest);
  }
}
