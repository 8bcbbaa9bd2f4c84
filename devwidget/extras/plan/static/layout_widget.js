// The page of a layout in a notebook: Python draws it, this answers its button.
import { html, widget } from "../../../panel/static/base.js";
import { copyText, Markup, Status } from "../../../panel/static/parts.js";
import { say } from "../../../panel/static/words.js";

function open(page) {
  const { model, state } = page;

  async function copy(event) {
    if (!event.target.closest("[data-do=copy]")) return;
    const isCopied = await copyText(model.get("device_map"));
    if (isCopied) page.tell("done", say("the device map is on the clipboard"));
    else page.tell("refused", say("this page has no clipboard: write layout.device_map"));
  }

  return () => html`<div class="dw"><${Status} page=${page} /></div><${Markup} text=${state.page} onclick=${copy} />`;
}

export default widget(open);
