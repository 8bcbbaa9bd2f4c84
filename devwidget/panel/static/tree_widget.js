// The tree as a widget: toolbar, table, drawer; its data comes from Python, and the panel around it sets `traced`, `filter` and `reveal`.
import { createRef } from "preact";
import { signal } from "@preact/signals-core";
import { html, KEYS, newId, widget } from "./base.js";
import { Detail } from "./detail.js";
import { Outline } from "./outline.js";
import { Rows, unpacked } from "./rows.js";
import { TreeTable } from "./tree.js";
import { say } from "./words.js";

const EXAMPLES = ["device:cpu", "dtype:float16", "kind:attribute", "has:finding", "has:hop", "has:grad", "class:Linear"];

async function open(page) {
  const { model, state } = page;
  const outline = new Outline();
  const detail = signal(null); // { row, content, words }: of the row whose drawer is open
  const table = createRef();
  const drawer = createRef();
  const list = newId("filters");

  function openDetail(row) {
    const before = detail.value;
    if (row === null) detail.value = null;
    else if (page.control && row !== before?.row) page.ask({ ask: "select", row });
    if (row !== null) fill(row, true);
    return before !== null;
  }

  // With `inSight` what is opened is scrolled to: it stands below the table where there is no room beside it.
  async function fill(row, inSight = false) {
    const content = outline.rows.details[row];
    draw({ row, content, words: say("asking the kernel …") }, inSight);
    if (content || !page.control) return;
    const answer = await page.ask({ ask: "detail", row });
    if (detail.value?.row !== row) return;
    draw({ row, content: answer.detail, words: answer.error ?? say("this row no longer exists") }, inSight);
  }

  function draw(drawn, inSight) {
    detail.value = drawn;
    if (inSight) setTimeout(() => drawer.current?.scrollIntoView({ block: "nearest" }));
  }

  async function show(content) {
    const rows = new Rows(await unpacked(content));
    if (content !== model.get("table")) return; // a newer one is on its way
    rows.mark(model.get("marks") ?? {});
    const path = detail.value && outline.rows.pathOf(detail.value.row);
    outline.show(rows);
    if (path !== null) showAgain(path);
  }

  // The open drawer after the table has changed: rows have other numbers, or are gone.
  function showAgain(path) {
    const row = outline.rows.rowOf(path);
    detail.value = null;
    if (outline.rows.pathOf(row) === path) fill(row);
  }

  function showMarks() {
    outline.mark(model.get("marks") ?? {});
    if (detail.value) fill(detail.value.row);
  }

  function reveal({ row: known, path }) {
    const row = known ?? outline.rows.rowOf(path);
    if (row < 0 || row >= outline.rows.count) return;
    outline.reveal(row);
    table.current?.showActive(true);
    table.current?.focus();
    openDetail(row);
  }

  let ready = show(model.get("table"));
  page.on("change:table", () => (ready = show(model.get("table"))));
  const later = (event, act) => page.on(event, async () => { await ready; act(); });
  later("change:marks", showMarks);
  later("change:traced", showMarks);
  later("change:filter", () => outline.filter(model.get("filter") ?? ""));
  later("change:reveal", () => reveal(model.get("reveal") ?? {}));
  await ready;

  function shut() {
    openDetail(null);
    table.current?.focus();
  }

  function Drawer() {
    const { row, content, words } = detail.value ?? {};
    const { rows } = outline;
    const { findings = [], hops = [] } = state.traced ?? {};
    const cards = (rows.marks[row]?.[2] ?? []).map((number) => [number, findings[number]]).filter(([, card]) => card);
    const crossings = (rows.hops[row] ?? []).filter(([number]) => hops[number]).map(([number, count, bytes]) => ({ ...hops[number], count, bytes }));
    const lead = (target) => model.set("lead", { ...target });
    const facts = { detail: content, cards, hops: crossings, close: shut, lead };
    return html`
      <section ref=${drawer} class="dw-detail" aria-label=${say("row detail")} hidden=${!detail.value}>
        ${content ? html`<${Detail} ...${facts} />` : html`<p class="dw-soft">${words}</p>`}
      </section>
    `;
  }

  function Toolbar() {
    outline.version.value;
    const plain = (text, label, act) => html`<button class="dw-plain" aria-label=${label} onclick=${act}>${text}</button>`;
    return html`
      <div class="dw-toolbar">
        <input
          class="dw-input dw-filter" type="search" list=${list} value=${outline.filterText} aria-label=${say("filter rows")}
          placeholder=${say("filter: part of a path, device:cuda:1, has:finding …")} oninput=${(event) => outline.filter(event.target.value)}
        />
        <datalist id=${list}>${EXAMPLES.map((value) => html`<option value=${value} />`)}</datalist>
        ${plain(say("expand"), say("Expand all rows"), () => outline.openAll(true))}
        ${plain(say("collapse"), say("Collapse all rows"), () => outline.openAll(false))}
      </div>
    `;
  }

  return () => html`
    <div class="dw dw-modules" ...${KEYS}>
      <${Toolbar} />
      <div class="dw-split"><${TreeTable} ref=${table} outline=${outline} opened=${openDetail} /><${Drawer} /></div>
    </div>
  `;
}

export default widget(open);
