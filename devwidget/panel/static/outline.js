// Which rows of the module tree are shown, in which order, and which of them is active.
import { signal } from "@preact/signals-core";
import { filterRows } from "./filter.js";
import { Rows } from "./rows.js";

const MOST_OPEN = 60;

export class Outline {
  rows = new Rows({});
  open = new Uint8Array(0); // for each row whether it is expanded
  unfolded = new Set(); // first rows of identical blocks that are all shown
  filterText = "";
  /** @type {any} */
  sort = null; // [column, descending]
  /** @type {any} */
  found = null; // what the filter left
  /** @type {number[]} */
  shown = [];
  active = 0; // place in `shown`
  isMet = false; // whether the user has clicked or used the keyboard: only then a row is drawn as selected
  typed = "";
  version = signal(0); // counts changes: what reads it is drawn again
  content = 0; // version in which something else than the active row changed

  get row() {
    return this.shown[this.active];
  }

  // New rows; rows that were open stay open, found again by their path.
  show(rows) {
    const before = this.rows;
    const pathOf = (row) => before.pathOf(row);
    const opened = new Set([...this.open.keys()].filter((row) => this.open[row]).map(pathOf));
    const unfolded = [...this.unfolded].map(pathOf);
    const active = this.shown.length ? pathOf(this.row) : "";
    this.rows = rows;
    this.open = rows.firstOpen(MOST_OPEN);
    if (before.count) this.open = this.open.map((_, row) => Number(rows.hasChildren(row) && opened.has(rows.pathOf(row))));
    this.unfolded = new Set(unfolded.map((path) => rows.rowOf(path)));
    this.update();
    if (active) this.active = Math.max(0, this.shown.findIndex((row) => rows.pathOf(row) === active));
  }

  // The same rows with other marks.
  mark(marks) {
    this.rows.mark(marks);
    this.update();
  }

  filter(text) {
    this.filterText = text;
    this.update(this.row);
  }

  // Up, down, and as the model has them; of amounts the largest come first.
  sortBy({ key, cell }) {
    const [column, isDescending] = this.sort ?? [];
    const first = cell === "amount" || cell === "notes";
    if (column !== key) this.sort = [key, first];
    else this.sort = isDescending === first ? [key, !first] : null;
    this.update(this.row);
  }

  openAll(open) {
    const { rows, row } = this;
    this.unfolded = new Set(open ? Object.keys(rows.folds).map(Number) : []);
    this.open = this.open.map((_, at) => Number(rows.hasChildren(at) && (open || at === 0)));
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
    return this.isFoldable(row) && !this.unfolded.has(row);
  }

  isFoldable(row) {
    return Boolean(this.rows.folds[row]) && !this.found && !this.sort;
  }

  isExpanded(row) {
    return Boolean(this.open[row] || this.found);
  }

  // To a row wherever it hides.
  reveal(row) {
    this.filterText = "";
    for (let at = row; at >= 0; at = this.rows.parent[at]) {
      const first = this.rows.foldOver(at);
      if (at !== row) this.open[at] = 1;
      if (first !== undefined) this.unfolded.add(first);
    }
    this.isMet = true;
    this.update(row);
  }

  activate(place) {
    this.active = Math.min(this.shown.length - 1, Math.max(0, place));
    this.isMet = true;
    this.version.value += 1;
  }

  meet() {
    if (!this.isMet) this.activate(this.active);
  }

  right() {
    const { row } = this;
    if (!this.rows.hasChildren(row)) return;
    if (this.open[row]) this.activate(this.active + 1);
    else this.toggle(row, true);
  }

  left() {
    const { row } = this;
    const parent = this.rows.parent[row];
    if (this.open[row] && this.rows.hasChildren(row) && !this.found) this.toggle(row, false);
    else if (parent >= 0) this.activate(this.shown.indexOf(parent));
  }

  // To the next row whose name begins with the letters that were typed in one go.
  typeAhead(letter) {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => (this.typed = ""), 700);
    this.typed += letter.toLowerCase();
    const count = this.shown.length;
    const from = this.typed.length === 1 ? 1 : 0;
    const places = Array.from({ length: count }, (_, step) => (this.active + from + step) % count);
    const fits = (place) => this.rows.nameOf(this.shown[place]).toLowerCase().startsWith(this.typed);
    const found = places.find(fits);
    if (found !== undefined) this.activate(found);
  }

  update(keep) {
    this.found = filterRows(this.rows, this.filterText);
    const order = this.sort && this.rows.orderBy(...this.sort);
    this.shown = this.rows.visible(this.open, this.found?.kept, order, this.unfolded);
    const place = keep === undefined ? -1 : this.shown.indexOf(keep);
    this.active = place >= 0 ? place : Math.min(this.active, Math.max(0, this.shown.length - 1));
    this.version.value += 1;
    this.content = this.version.value;
  }
}
