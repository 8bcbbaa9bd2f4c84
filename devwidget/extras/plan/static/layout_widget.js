// The page of a layout in a notebook: Python draws it, this answers its button.
import { h } from "../../../panel/static/dom.js";
import { say, spoken } from "../../../panel/static/words.js";

async function render({ model, el, signal }) {
  const page = h("div");
  const status = h("span", { class: "dw-status", role: "status" });
  const tell = (kind, text) => {
    status.className = `dw-status dw-status-${kind}`;
    status.textContent = text;
  };
  // A page that is no secure context has no clipboard.
  async function copy() {
    if (!navigator.clipboard) return tell("refused", say("this page has no clipboard: write layout.device_map"));
    await navigator.clipboard.writeText(model.get("device_map"));
    tell("done", say("the device map is on the clipboard"));
  }
  page.addEventListener("click", (event) => {
    if (!event.target.closest?.("[data-do=copy]")) return;
    copy().catch((error) => tell("refused", say("that does not work here: {error}", { error: error.message })));
  });
  // What Python draws is markup whose every text was escaped there (`report/style/safe_text.py`).
  const draw = () => {
    page.innerHTML = model.get("page");
    page.querySelector(".dw-verdict")?.after(status);
  };
  draw();
  el.append(page);
  model.on("change:page", draw);
  signal?.addEventListener("abort", () => model.off("change:page", draw));
}

export default { render: spoken(render) };
