// A card that Python has drawn, below an exception or an edit: its buttons, and the cells that it writes.
import { reversed, writeCells } from "./apply.js";
import { ask, keepKeys } from "./dom.js";

function render({ model, el, signal }) {
  const root = document.createElement("div");
  root.className = "dw dw-card";
  root.toggleAttribute("data-folds", model.get("folds")); // `card.css` folds the traceback above it
  keepKeys(root);
  el.append(root);

  function draw() {
    const held = root.contains(document.activeElement);
    root.innerHTML = model.get("html"); // of `report/page/templates/card.html.j2`, which escapes every text
    if (held) root.querySelector("button")?.focus();
    ended();
  }
  function press(question) {
    ask(model, { ask: question }, async ({ cells, back }) => {
      if (cells) ask(model, { ask: "written", why: cells.length ? await writeCells(model, back ? reversed(cells) : cells) : "" });
    });
  }
  function ended() {
    if (model.comm_live === false) root.querySelectorAll("[data-ask]").forEach((button) => (button.disabled = true));
  }
  root.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (button?.dataset.ask) press(button.dataset.ask);
    if (button?.hasAttribute("aria-expanded")) button.setAttribute("aria-expanded", String(!root.toggleAttribute("data-folds")));
  });
  for (const [name, call] of [["change:html", draw], ["comm_live_update", ended]]) {
    model.on(name, call);
    signal?.addEventListener("abort", () => model.off(name, call));
  }
  draw();
  if (model.get("writes")) press("apply");
}

export default { render };
