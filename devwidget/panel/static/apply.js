// An edit into the editor of its cell, through the notebook that JupyterLab or Notebook 7 shows; every step is guarded,
// since no specification promises that a widget finds its notebook. `edit`: { number, raw, first, old, new }.

import { word } from "./words.js";

// Why `writeCells` has written nothing.
export const UNWRITTEN = {
  host: word("Only JupyterLab and Notebook 7 let a panel edit a cell."),
  cell: word("The cell was not found: it was re-run, copied or deleted."),
  changed: word("The cell was edited on that line after it ran."),
};
const STEPS = 60;
const STEP_MS = 30;
const SHOWN_MS = 2500;
const FLASH = "#ffa50073"; // readable on it in both themes

const startOf = (text, line) => text.split("\n").slice(0, line - 1).reduce((sum, row) => sum + row.length + 1, 0);

// The line where the old lines stand; 0 where that is not certain: a text that is not as it ran may have them once.
function lineOf(text, edit) {
  const rows = text.split("\n");
  const fits = (line) => rows.slice(line - 1, line - 1 + edit.old.length).join("\n") === edit.old.join("\n");
  if (text === edit.raw) return fits(edit.first) ? edit.first : 0;
  const found = rows.map((_, at) => at + 1).filter(fits);
  return found.length === 1 ? found[0] : 0;
}

export function notebookOf(model) {
  const context = model.widget_manager?.context;
  return !context?.isDisposed && context?.model?.sharedModel?.cells?.[0]?.updateSource ? context : null; // VS Code has an empty one
}

// The number of a run is given once by a kernel; a copy of a cell may bear it too, and then neither is chosen.
function cellOf(context, edit) {
  const ran = [...context.model.sharedModel.cells].filter((cell) => cell.cell_type === "code" && cell.execution_count === edit.number && cell.getMetadata("editable") !== false);
  return ran.length === 1 ? ran[0] : null;
}

// -> "" if all edits were written, and shown, else why none was: `host`, `cell` or `changed`.
export async function writeCells(model, edits) {
  const context = notebookOf(model);
  if (!context) return "host";
  const places = edits.map((edit) => ({ edit, cell: cellOf(context, edit) }));
  if (places.some(({ cell }) => !cell)) return "cell";
  if (places.some(({ edit, cell }) => !lineOf(cell.getSource(), edit))) return "changed";
  for (const { edit, cell } of places) {
    const text = cell.getSource();
    const line = lineOf(text, edit);
    const start = startOf(text, line);
    cell.undoManager?.stopCapturing(); // else what was typed just before and this are one step for Ctrl+Z
    cell.updateSource(start, start + edit.old.join("\n").length, edit.new.join("\n"));
    cell.undoManager?.stopCapturing();
    await reveal(model, cell, line, edit.new.length);
  }
  return "";
}

// The same edits the other way round.
export const reversed = (edits) => edits.map((edit) => ({ ...edit, raw: edit.raw.split("\n").toSpliced(edit.first - 1, edit.old.length, ...edit.new).join("\n"), old: edit.new, new: edit.old }));

// Calls `gone` once all these edits were taken back in their cells, by Ctrl+Z or by hand. -> how to stop watching.
export function watchCells(model, edits, gone) {
  const context = notebookOf(model);
  const pairs = edits.map((edit, at) => ({ edit, back: reversed(edits)[at], cell: context && cellOf(context, edit) })).filter(({ cell }) => cell?.changed?.connect);
  const isBack = ({ edit, back, cell }, text = cell.getSource()) => text === edit.raw || (lineOf(text, edit) && !lineOf(text, back));
  const look = () => {
    if (!pairs.every((pair) => isBack(pair))) return;
    stop();
    gone();
  };
  const stop = () => pairs.forEach(({ cell }) => cell.changed.disconnect(look));
  for (const { cell } of pairs) cell.changed.connect(look);
  return stop;
}

// Run the cell of an edit that was written, as its user would; of a notebook that is not trusted JupyterLab asks first.
// -> whether it could be asked for: the cell must be the active one, or another would run.
export async function runCellOf(model, edit) {
  const context = notebookOf(model);
  const cell = context && cellOf(context, edit);
  const line = cell && lineOf(cell.getSource(), edit);
  const node = line && (await reveal(model, cell, line, edit.old.length));
  if (!node?.classList.contains("jp-mod-active")) return false;
  runCommand(node, "notebook:run-cell", {});
  return true;
}

// A command of JupyterLab, as a link in this cell runs it: only inside of its notebook the trust in that counts.
function runCommand(cell, id, args) {
  const button = cell.appendChild(document.createElement("button"));
  button.hidden = true;
  Object.assign(button.dataset, { commandlinkerCommand: id, commandlinkerArgs: JSON.stringify(args) });
  button.click();
  button.remove();
}

function viewOf(node) {
  const text = node?.querySelector(".cm-content");
  return (text?.cmTile ?? text?.cmView)?.view; // CodeMirror's own; without it the text is written all the same
}

// By place and text: several notebooks, and several views of one, may be in a page.
function nodeOf(cells, cell) {
  const place = `.jp-Notebook .jp-Cell[data-windowed-list-index="${[...cells].indexOf(cell)}"]`;
  return [...document.querySelectorAll(place)].find((node) => node instanceof HTMLElement && node.offsetParent && viewOf(node)?.state.doc.toString() === cell.getSource());
}

const wait = () => new Promise((go) => setTimeout(go, STEP_MS));

// -> the node of the cell, which is the active one then; null if no editor shows it.
async function reveal(model, cell, line, count) {
  const { context, rendermime } = model.widget_manager;
  const { cells } = context.model.sharedModel;
  let node = nodeOf(cells, cell);
  if (!node && rendermime?.linkHandler) {
    const link = document.body.appendChild(document.createElement("a"));
    rendermime.linkHandler.handleLink(link, context.path, `#cell-id=${cell.getId()}`);
    link.click();
    link.remove();
    for (let step = 0; step < STEPS && !(node = nodeOf(cells, cell)); step++) await wait();
  }
  const view = viewOf(node);
  if (!view) return null; // its input is hidden
  const at = view.state.doc.line(line).from;
  view.focus(); // makes the cell active: Ctrl+Z works at once
  view.dispatch({ selection: { anchor: at }, effects: view.constructor.scrollIntoView(at, { y: "center" }) });
  await wait();
  await wait();
  for (let row = line; row < line + count; row++) {
    const found = view.domAtPos(view.state.doc.line(row).from).node;
    const shown = (found.nodeType === 1 ? found : found.parentElement).closest(".cm-line");
    shown?.animate([{ backgroundColor: FLASH }, {}], SHOWN_MS);
  }
  return node;
}
