// Which rows of the module tree are shown, in which order, which of them is active, and which has its drawer open.
import { createRef } from "preact";
import { signal } from "@preact/signals-core";
import { filterRows } from "./filter.js";
import { Rows } from "./rows.js";
import { say } from "./words.js";

const MOST_OPEN = 60;

export class Outline {
  rows = new Rows({});
  /** @type {any[]} */
  open = []; // for each row whether it is expanded
  unfolded = new Set(); // first rows of identical blocks that are all shown
  filterText = "";
  /** @type {any} */
  sort = null; // the head of a column, with `isDescending`
  /** @type {any} */
  found = null; // what the filter left
  /** @type {number[]} */
  shown = [];
  active = 0; // place in `shown`
  isMet = false; // whether the user has clicked or used the keyboard: only then a row is drawn as selected
  typed = "";
  version = signal(0); // counts changes: what reads it is drawn again
  detail = signal(null); // { row, content, words }: of the row whose drawer is open
  table = createRef();
  drawer = createRef();

  constructor(panel) {
    this.panel = panel;
    this.load();
    panel.on("change:table", () => this.load());
    panel.on("change:marks", () => this.mark());
  }

  get row() {
    return this.shown[this.active];
  }

  // Rows have other numbers in another table, or are gone: what was open is found again by its path.
  load() {
    const { rows: before, detail, row: active } = this;
    const rows = new Rows(this.panel.model.get("table") ?? {});
    const again = (row) => rows.paths.indexOf(before.paths[row]);
    const opened = new Set(before.paths.filter((_, row) => this.open[row]));
    this.rows = rows;
    this.open = before.count ? rows.paths.map((path, row) => rows.hasChildren(row) && opened.has(path)) : rows.firstOpen(MOST_OPEN);
    this.unfolded = new Set([...this.unfolded].map(again));
    if (detail.value) detail.value = { ...detail.value, row: again(detail.value.row) };
    this.mark(again(active));
  }

  mark(active = this.row) {
    const { detail } = this;
    Object.assign(this.rows, this.panel.model.get("marks"));
    this.update(active);
    if (detail.value?.row < 0) detail.value = null;
    if (detail.value) this.pick(detail.value.row, false);
  }

  filter(text) {
    this.filterText = text;
    this.update();
  }

  // Up, down, and as the model has them; of amounts the largest come first.
  sortBy(head) {
    const first = head.cell === "amount" || head.cell === "notes";
    const { key, isDescending } = this.sort ?? {};
    if (key !== head.key) this.sort = { ...head, isDescending: first };
    else this.sort = isDescending === first ? { ...head, isDescending: !first } : null;
    this.update();
  }

  openAll(open) {
    const { rows } = this;
    this.unfolded = new Set(open ? Object.keys(rows.folds).map(Number) : []);
    this.open = this.open.map((_, row) => rows.hasChildren(row) && (open || row === 0));
    this.update();
  }

  toggle(row) {
    this.open[row] = this.rows.hasChildren(row) && !this.open[row];
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

  // To a row wherever it hides, and open its drawer.
  lead({ row, path }) {
    const target = row ?? this.rows.rowOf(path);
    if (target < 0 || target >= this.rows.count) return;
    this.filterText = "";
    for (let at = target; at >= 0; at = this.rows.parent[at]) {
      const first = this.rows.foldOver(at);
      if (at !== target) this.open[at] = true;
      if (first !== undefined) this.unfolded.add(first);
    }
    this.isMet = true;
    this.update(target);
    this.table.current?.showActive(true);
    this.table.current?.focus();
    this.pick(target);
  }

  activate(place) {
    this.active = Math.min(this.shown.length - 1, Math.max(0, place));
    this.isMet = true;
    this.version.value += 1;
  }

  right() {
    if (!this.rows.hasChildren(this.row)) return;
    if (this.isExpanded(this.row)) this.activate(this.active + 1);
    else this.toggle(this.row);
  }

  left() {
    const { row } = this;
    const parent = this.rows.parent[row];
    if (this.open[row] && !this.found) this.toggle(row);
    else if (parent >= 0) this.activate(this.shown.indexOf(parent));
  }

  // To the next row whose name begins with the letters that were typed in one go.
  typeAhead(letter) {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => (this.typed = ""), 700);
    this.typed += letter.toLowerCase();
    const from = this.active + (this.typed.length === 1 ? 1 : 0);
    const ordered = [...this.shown.slice(from), ...this.shown.slice(0, from)];
    const found = ordered.find((row) => this.rows.names[row].toLowerCase().startsWith(this.typed));
    if (found !== undefined) this.activate(this.shown.indexOf(found));
  }

  update(active = this.row) {
    this.found = filterRows(this.rows, this.filterText);
    const order = this.sort && this.rows.orderBy(this.sort);
    this.shown = this.rows.visible(this.open, this.found?.kept, order, this.unfolded);
    const place = this.shown.indexOf(active);
    this.active = place >= 0 ? place : Math.min(this.active, Math.max(0, this.shown.length - 1));
    this.version.value += 1;
  }

  // -> whether a drawer was open.
  leave() {
    const wasOpen = this.detail.value !== null;
    this.detail.value = null;
    this.table.current?.focus();
    return wasOpen;
  }

  // Open the drawer of a row. One that is `chosen` is scrolled to: it stands below the table where there is no room beside it.
  async pick(row, chosen = true) {
    const { control } = this.panel;
    const content = this.rows.details[row];
    this.draw({ row, content, words: say("asking the kernel …") }, chosen);
    if (!control || (content && !chosen)) return;
    const answer = await this.panel.ask({ ask: "select", row });
    if (content || this.detail.value?.row !== row) return;
    this.draw({ row, content: answer.detail, words: answer.error ?? say("this row no longer exists") }, chosen);
  }

  draw(drawn, inSight) {
    this.detail.value = drawn;
    if (inSight) setTimeout(() => this.drawer.current?.scrollIntoView({ block: "nearest" }));
  }
}
