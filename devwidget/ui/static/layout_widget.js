// The page of a layout in a notebook: Python draws it, this answers its two buttons.
import { h } from "./dom.js";
import { paintedText, saveBlob } from "./pictures.js";
import { say, spoken } from "./words.js";

async function render({ model, el, signal }) {
  const page = h("div");
  const status = h("span", { class: "dw-status", role: "status" });
  const tell = (kind, text) => {
    status.className = `dw-status dw-status-${kind}`;
    status.textContent = text;
  };
  const acts = {
    // A page that is no secure context has no clipboard.
    copy: async () => {
      const { map } = model.get("share");
      if (!navigator.clipboard) return tell("refused", say("this page has no clipboard: write layout.device_map"));
      await navigator.clipboard.writeText(map);
      tell("done", say("the device map is on the clipboard"));
    },
    share: async () => {
      const { name, picture } = model.get("share");
      saveBlob(await paintedText(picture), name);
      tell("done", say("saved {file}", { file: name }));
    },
  };
  page.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-do]");
    if (button) acts[button.dataset.do]().catch((error) => tell("refused", say("that does not work here: {error}", { error: error.message })));
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
