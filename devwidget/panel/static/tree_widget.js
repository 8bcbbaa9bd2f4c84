// The tree as a widget: toolbar, table, drawer; its data comes from Python, and the panel around it sets `traced`, `filter` and `reveal`.
import { ask, h, keepKeys } from "./dom.js";
import { Rows, unpacked } from "./rows.js";
import { TreeView } from "./tree.js";
import { detailView } from "./detail.js";
import { say, spoken } from "./words.js";

const EXAMPLES = ["device:cpu", "dtype:float16", "kind:attribute", "has:finding", "has:hop", "has:grad", "class:Linear"];
let lists = 0;

async function render({ model, el, host, signal }) {
  const control = model.get("control") ? await host.getModel(model.get("control")) : null;
  const drawer = h("section", { class: "dw-detail", "aria-label": say("row detail"), hidden: true });
  const tree = new TreeView((row) => openDetail(row));
  const list = `dw-filters-${lists++}`;
  const field = h("input", {
    class: "dw-input dw-filter",
    type: "search",
    list,
    placeholder: say("filter: part of a path, device:cuda:1, has:finding …"),
    "aria-label": say("filter rows"),
    oninput: () => tree.filter(field.value),
  });
  const button = (text, label, onclick) => h("button", { class: "dw-plain", type: "button", "aria-label": label, onclick }, text);
  const bar = h(
    "div",
    { class: "dw-toolbar" },
    field,
    h("datalist", { id: list }, EXAMPLES.map((value) => h("option", { value }))),
    button(say("expand"), say("Expand all rows"), () => tree.openAll(true)),
    button(say("collapse"), say("Collapse all rows"), () => tree.openAll(false)),
  );
  const root = h("div", { class: "dw dw-modules" }, bar, h("div", { class: "dw-split" }, tree.el, drawer));
  keepKeys(root);
  el.append(root);

  let shownRow = null;
  function openDetail(row) {
    const wasOpen = shownRow !== null;
    if (control && row !== null && row !== shownRow) ask(control, { ask: "select", row });
    shownRow = row;
    if (row === null) {
      drawer.hidden = true;
      return wasOpen;
    }
    const known = tree.rows.details[row];
    if (known) fill(row, known);
    else if (control) askFor(row);
    return true;
  }
  function askFor(row) {
    fill(row, null, say("asking the kernel …"));
    ask(control, { ask: "detail", row }, (answer) => {
      if (shownRow === row) fill(row, answer.detail, answer.error ?? say("this row no longer exists"));
    });
  }
  function fill(row, detail, otherwise) {
    const traced = model.get("traced") ?? {};
    const cards = (tree.rows.marks[row]?.[2] ?? []).map((number) => [number, traced.findings?.[number]]).filter(([, card]) => card);
    const hops = (tree.rows.hops[row] ?? []).map(([number, count, bytes]) => traced.hops?.[number] && { ...traced.hops[number], count, bytes }).filter(Boolean);
    const shut = () => {
      openDetail(null);
      tree.grid.focus();
    };
    drawer.replaceChildren(...(detail ? detailView(detail, cards, hops, shut, (target) => model.set("lead", { ...target })) : [h("p", { class: "dw-soft" }, otherwise)]));
    drawer.hidden = false;
  }

  let ready = Promise.resolve();
  const draw = async () => {
    const table = model.get("table");
    const rows = new Rows(await unpacked(table));
    if (table !== model.get("table")) return; // a newer one is on its way
    rows.mark(model.get("marks") ?? {});
    const path = shownRow === null ? null : tree.rows.pathOf(shownRow);
    tree.show(rows);
    if (path !== null) redraw(path);
  };
  // The open drawer after the table has changed: rows have other numbers, or are gone.
  function redraw(path) {
    const row = tree.rows.rowOf(path);
    shownRow = null;
    openDetail(row >= 0 && tree.rows.pathOf(row) === path ? row : null);
  }
  const remark = async () => {
    await ready;
    tree.rows.mark(model.get("marks") ?? {});
    tree.update();
    if (shownRow !== null) openDetail(shownRow);
  };
  const refilter = async () => {
    await ready;
    field.value = model.get("filter") ?? "";
    tree.filter(field.value);
  };
  const reveal = async () => {
    await ready;
    const { row: known, path } = model.get("reveal") ?? {};
    const row = known ?? tree.rows.rowOf(path);
    if (row < 0) return;
    field.value = "";
    tree.filterText = "";
    tree.reveal(row);
    tree.grid.focus({ preventScroll: true });
    openDetail(row);
  };
  const listeners = { "change:table": () => (ready = draw()), "change:marks": remark, "change:traced": remark, "change:filter": refilter, "change:reveal": reveal };
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  await (ready = draw());
  const stop = () => {
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
    tree.close();
  };
  signal?.addEventListener("abort", stop);
  return stop;
}

export default { render: spoken(render) };
