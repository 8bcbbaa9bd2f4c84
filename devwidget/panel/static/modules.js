// The Modules tab below the memory bars: a filter, the module tree, and the drawer of one of its rows.
import { createRef } from "preact";
import { signal } from "@preact/signals-core";
import { html, newId } from "./base.js";
import { Detail } from "./detail.js";
import { Outline } from "./outline.js";
import { Rows, unpacked } from "./rows.js";
import { TreeTable } from "./tree.js";
import { say } from "./words.js";

const EXAMPLES = ["device:cpu", "dtype:float16", "kind:attribute", "has:finding", "has:hop", "has:grad", "class:Linear"];

export class Modules extends Outline {
  detail = signal(null); // { row, content, words }: of the row whose drawer is open
  table = createRef();
  drawer = createRef();
  examples = newId("filters");

  constructor(panel) {
    super();
    this.panel = panel;
    this.ready = this.load();
    panel.on("change:table", () => (this.ready = this.load()));
    panel.on("change:marks", () => this.loadMarks());
  }

  // Rows have other numbers in another table, or are gone: an open drawer is found again by its path.
  async load() {
    const { model } = this.panel;
    const content = model.get("table");
    const rows = new Rows(await unpacked(content));
    if (content !== model.get("table")) return; // a newer one is on its way
    const { detail } = this;
    const path = detail.value && this.rows.pathOf(detail.value.row);
    rows.mark(model.get("marks") ?? {});
    this.show(rows);
    if (path === null) return;
    const row = rows.rowOf(path);
    detail.value = null;
    if (rows.pathOf(row) === path) this.fill(row);
  }

  async loadMarks() {
    await this.ready;
    this.mark(this.panel.model.get("marks") ?? {});
    if (this.detail.value) this.fill(this.detail.value.row);
  }

  async lead({ row: known, path }) {
    await this.ready;
    const row = known ?? this.rows.rowOf(path);
    if (row < 0 || row >= this.rows.count) return;
    this.reveal(row);
    this.table.current?.showActive(true);
    this.table.current?.focus();
    this.pick(row);
  }

  // Open the drawer of a row.
  pick(row) {
    const { panel, detail } = this;
    if (panel.control && row !== detail.value?.row) panel.ask({ ask: "select", row });
    this.fill(row, true);
  }

  // -> whether a drawer was open.
  leave() {
    const wasOpen = this.detail.value !== null;
    this.detail.value = null;
    this.table.current?.focus();
    return wasOpen;
  }

  // With `inSight` what is opened is scrolled to: it stands below the table where there is no room beside it.
  async fill(row, inSight = false) {
    const content = this.rows.details[row];
    this.draw({ row, content, words: say("asking the kernel …") }, inSight);
    if (content || !this.panel.control) return;
    const answer = await this.panel.ask({ ask: "detail", row });
    if (this.detail.value?.row !== row) return;
    this.draw({ row, content: answer.detail, words: answer.error ?? say("this row no longer exists") }, inSight);
  }

  draw(drawn, inSight) {
    this.detail.value = drawn;
    if (inSight) setTimeout(() => this.drawer.current?.scrollIntoView({ block: "nearest" }));
  }
}

export function ModuleTree({ tree }) {
  return html`
    <div class="dw-modules">
      <${Toolbar} tree=${tree} />
      <div class="dw-split"><${TreeTable} ref=${tree.table} tree=${tree} /><${Drawer} tree=${tree} /></div>
    </div>
  `;
}

function Toolbar({ tree }) {
  tree.version.value;
  const plain = (text, label, act) => html`<button class="dw-plain" aria-label=${label} onclick=${act}>${text}</button>`;
  return html`
    <div class="dw-toolbar">
      <input
        class="dw-input dw-filter" type="search" list=${tree.examples} value=${tree.filterText} aria-label=${say("filter rows")}
        placeholder=${say("filter: part of a path, device:cuda:1, has:finding …")} oninput=${(event) => tree.filter(event.target.value)}
      />
      <datalist id=${tree.examples}>${EXAMPLES.map((value) => html`<option value=${value} />`)}</datalist>
      ${plain(say("expand"), say("Expand all rows"), () => tree.openAll(true))}
      ${plain(say("collapse"), say("Collapse all rows"), () => tree.openAll(false))}
    </div>
  `;
}

function Drawer({ tree }) {
  const { row, content, words } = tree.detail.value ?? {};
  return html`
    <section ref=${tree.drawer} class="dw-detail" aria-label=${say("row detail")} hidden=${!tree.detail.value}>
      ${content ? html`<${Detail} tree=${tree} row=${row} detail=${content} />` : html`<p class="dw-soft">${words}</p>`}
    </section>
  `;
}
