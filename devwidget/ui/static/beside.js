// The panel beside its notebook: JupyterLab shows the output of a cell in a view of its own, which stays while the notebook scrolls.
import { notebookOf, runCommand, viewOf } from "./apply.js";

// -> whether JupyterLab was asked; it may ask in turn whether a button may do that.
export function openBeside(model, el) {
  const context = notebookOf(model);
  const node = el.closest(".jp-Notebook .jp-Cell");
  const index = Number(node?.dataset.windowedListIndex ?? -1);
  // one kernel may serve two notebooks, and the page knows the first of them
  const isHere = context && node && [...context.model.sharedModel.cells][index]?.getSource() === viewOf(node)?.state.doc.toString();
  if (!isHere || !document.querySelector("#jp-main-dock-panel")) return false;
  runCommand("notebook:create-output-view", { path: context.path, index });
  return true;
}
