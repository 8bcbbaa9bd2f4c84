// The page of a plan in a notebook: Python draws its parts, and the form stands between them.
import { ask, h, keepKeys, watchKernel } from "../../../panel/static/dom.js";
import { PlanForm } from "./plan_form.js";
import { say, spoken } from "../../../panel/static/words.js";

const STANDS_MS = 250; // after the last key or move, so that a slider that is led past a size does not plan it

// What Python draws is markup whose every text was escaped there (`report/style/safe_text.py`).
function parse(markup) {
  const template = document.createElement("template");
  template.innerHTML = markup;
  return template.content;
}

async function render({ model, el, host, signal }) {
  const control = await host.getModel(model.get("control"));
  const [head, verdict, body] = [h("div"), h("div"), h("div", { class: "dw-plan-body" })];
  const status = h("span", { class: "dw-status", role: "status" });
  const cancel = h("button", { class: "dw-button", type: "button", hidden: true, onclick: () => ask(control, { ask: "cancel" }, complain) }, say("Cancel"));
  const form = new PlanForm({ moved: fade, chosen });
  const work = h("span", { class: "dw-work" }, status, cancel);
  const root = h("form", { class: "dw dw-panel dw-plan", "aria-label": say("plan"), onsubmit: (event) => event.preventDefault() }, head, h("div", { class: "dw-knob-row" }, form.el, work), verdict, body);
  let timer = 0;
  let ended = false;
  keepKeys(root);
  el.append(root);
  root.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-ask]");
    if (!button || ended) return;
    ask(control, { ask: "question", question: button.dataset.ask }, complain);
    tell({ kind: "busy", text: say("asking the kernel … (after the running cell)") });
    cancel.focus();
  });

  function tell({ kind, text }) {
    const isBusy = kind === "busy";
    status.className = `dw-status dw-status-${kind}`;
    status.replaceChildren(isBusy ? h("span", { class: "dw-spin", "aria-hidden": "true" }) : "", text ?? "");
    const held = document.activeElement === cancel;
    cancel.hidden = !isBusy;
    if (held && !isBusy) body.querySelector(".dw-pick:checked")?.focus();
    for (const button of root.querySelectorAll("[data-ask]")) button.disabled = isBusy || ended;
  }
  function complain(answered) {
    if (answered.error) tell({ kind: "refused", text: answered.error });
  }
  const isShown = (setting) => JSON.stringify(setting) === JSON.stringify(model.get("page").setting);
  // What is shown is faint while the form says something else.
  function fade() {
    root.classList.toggle("dw-other", !isShown(form.read()));
  }
  function chosen() {
    fade();
    clearTimeout(timer);
    timer = setTimeout(() => {
      const setting = form.read();
      if (!isShown(setting) && !ended) ask(control, { ask: "setting", ...setting }, complain);
    }, STANDS_MS);
  }
  function draw() {
    const page = model.get("page");
    if (!page?.body) return;
    const picked = [...body.querySelectorAll(".dw-tab")].find((tab) => tab.querySelector(":checked"))?.textContent;
    const held = body.contains(document.activeElement);
    head.replaceChildren(parse(page.head));
    body.replaceChildren(parse(page.body));
    verdict.replaceChildren(parse(page.verdict));
    form.show(model.get("form"));
    fade();
    const tab = [...body.querySelectorAll(".dw-tab")].find((each) => each.textContent === picked)?.querySelector("input");
    if (tab) tab.checked = true;
    if (held) body.querySelector(".dw-pick:checked")?.focus();
    if (ended) end();
  }
  function end() {
    ended = true;
    for (const input of form.el.querySelectorAll("input,select")) input.disabled = true;
    tell({ kind: "error", text: say("The kernel was restarted. The panel shows the last state; re-run the cell to reconnect it.") });
  }
  const drawStatus = () => model.get("status")?.kind && tell(model.get("status"));

  const listeners = { "change:page": draw, "change:status": drawStatus };
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  draw();
  drawStatus();
  watchKernel(model, control, end, signal);
  const stop = () => {
    clearTimeout(timer);
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
  };
  signal?.addEventListener("abort", stop);
  return stop;
}

export default { render: spoken(render) };
