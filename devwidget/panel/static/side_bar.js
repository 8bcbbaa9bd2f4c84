// The panel in the side: a view of its own in JupyterLab's right side bar, which stays while notebooks come and go in the middle.
// No extension is needed: a notebook may add widgets to the middle of the page, and above each widget there stands, in the end,
// JupyterLab's shell, which puts them where it is asked to.
import { render } from "preact";
import { notebookOf } from "./apply.js";
import { html } from "./base.js";
import { say } from "./words.js";

// -> whether JupyterLab shows it.
export async function openInSide(model, title) {
  const context = notebookOf(model);
  const manager = model.widget_manager;
  if (!context?.addSibling || !manager.create_view || !document.querySelector("#jp-main-dock-panel")) return false;
  const view = await manager.create_view(await manager.get_model(model.get("itself").replace("anywidget:", "")));
  const widget = view.luminoWidget;
  widget.id = `devwidget-${Date.now()}`;
  Object.assign(widget.title, { label: title, caption: title, closable: true });
  widget.addClass("dw-in-side-bar");
  context.addSibling(widget, { mode: "split-right", activate: false });
  context.disposed.connect(() => widget.dispose());
  await new Promise(requestAnimationFrame); // the middle has to have laid it out before it goes elsewhere
  const shell = shellOf(widget);
  if (shell) {
    shell.add(widget, "right", { rank: 900 });
    shell.activateById(widget.id);
    const bar = document.createElement("div");
    widget.node.prepend(bar);
    render(html`<button class="dw-button dw-close-side" onclick=${() => widget.dispose()}>${say("Close")}</button>`, bar);
  }
  return true;
}

// JupyterLab's shell, the only widget with a bar on the right.
function shellOf(widget) {
  let above = widget.parent;
  while (above && !(above.add && above.expandRight && above.activateById)) above = above.parent;
  return above;
}
