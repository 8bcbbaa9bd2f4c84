// A proposed layout, drawn beside the devices of the model as it is.
import { html } from "../../../panel/static/base.js";
import { Picture } from "../../../panel/static/devices.js";
import { wordList } from "../../../panel/static/parts.js";
import { SECTIONS } from "../../../panel/static/sections.js";
import { say } from "../../../panel/static/words.js";

SECTIONS.push({ name: "proposed", open: openProposed });

function openProposed(panel) {
  function beside() {
    const { drawn, words } = panel.state.proposed ?? {};
    if (!drawn) return null;
    const picture = html`<${Picture} className="dw-proposed" drawn=${drawn} reveal=${panel.reveal} />`;
    return html`<div><h4>${say("Where it would go")}</h4>${picture}${wordList(words)}</div>`;
  }

  return { beside };
}
