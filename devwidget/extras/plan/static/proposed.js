// A proposed layout, drawn beside the devices of the model as it is.
import { Picture, wordList } from "../../../panel/static/devices.js";
import { h } from "../../../panel/static/dom.js";
import { SECTIONS } from "../../../panel/static/sections.js";
import { say } from "../../../panel/static/words.js";

SECTIONS.push({ name: "proposed", open: openProposed });

function openProposed({ model, reveal }) {
  const picture = new Picture("dw-proposed", { unfold: null, reveal });

  function beside() {
    const { drawn, words } = model.get("proposed") ?? {};
    picture.show(drawn ?? {});
    return drawn ? h("div", null, h("h4", null, say("Where it would go")), picture.el, wordList(words)) : null;
  }

  return { beside, close: () => picture.close() };
}
