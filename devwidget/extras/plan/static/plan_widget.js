// The page of a plan in a notebook: Python draws its parts, and the form stands between them.
import { signal } from "@preact/signals-core";
import { html, KEYS, newId, widget } from "../../../panel/static/base.js";
import { Markup, Status } from "../../../panel/static/parts.js";
import { Tabs } from "../../../panel/static/tabs.js";
import { PlanForm, settingOf } from "./plan_form.js";
import { say } from "../../../panel/static/words.js";

const STANDS_MS = 250; // after the last key or move, so that a slider that is led past a size does not plan it

function open(page) {
  const { state } = page;
  const draft = signal({}); // what was moved in the form since Python drew it
  const tab = signal(""); // the name of the one that is open, once it was chosen
  const id = newId("plan");
  let timer = 0;

  const isShown = (setting) => JSON.stringify(setting) === JSON.stringify(state.page.setting);
  const setting = () => settingOf(state.form, draft.value);

  page.follow(() => state.page && (draft.value = {}));
  page.follow(() => page.restarted && page.tell("error", page.restarted));
  page.over.addEventListener("abort", () => clearTimeout(timer));

  function chosen() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!isShown(setting()) && !page.ended.value) page.ask({ ask: "setting", ...setting() });
    }, STANDS_MS);
  }

  function click(event) {
    const button = event.target.closest("[data-ask]");
    if (!button || page.ended.value) return;
    page.ask({ ask: "question", question: button.dataset.ask });
    page.tell("busy", say("asking the kernel … (after the running cell)"));
  }

  return () => {
    const { page: drawn, form } = state;
    if (!drawn?.tabs) return "";
    const isOver = page.ended.value;
    const tabs = drawn.tabs.map(([name, text]) => ({ name, content: html`<${Markup} text=${text} />` }));
    const look = isShown(setting()) ? "dw dw-panel dw-plan" : "dw dw-panel dw-plan dw-other"; // faint while the form says something else
    return html`
      <form class=${look} aria-label=${say("plan")} ...${KEYS} onclick=${click} onsubmit=${(event) => event.preventDefault()}>
        <${Markup} text=${drawn.head} />
        <div class="dw-knob-row">
          <${PlanForm} form=${form} draft=${draft} chosen=${chosen} isOver=${isOver} id=${id} />
          <span class="dw-work">
            <${Status} page=${page} />
            <button class="dw-button" hidden=${!page.isBusy.value || isOver} onclick=${() => page.ask({ ask: "cancel" })}>${say("Cancel")}</button>
          </span>
        </div>
        <${Markup} text=${drawn.verdict} />
        <div class="dw-plan-body"><${Tabs} tabs=${tabs} open=${tab} id=${id} /></div>
      </form>
    `;
  };
}

export default widget(open);
