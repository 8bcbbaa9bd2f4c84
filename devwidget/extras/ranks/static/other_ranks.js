// Below the devices of a model: all ranks of the job of which this process is one, once they were asked.
import { ask, h } from "../../../panel/static/dom.js";
import { SECTIONS } from "../../../panel/static/sections.js";
import { say } from "../../../panel/static/words.js";

SECTIONS.push({ name: "ranks", open: openOthers });

function openOthers({ model, control, host, signal, complain }) {
  const below = h("section", { class: "dw-parallel dw-others", hidden: true });

  function draw() {
    const { offered, widget } = model.get("ranks") ?? {};
    below.hidden = !(offered || widget);
    if (below.hidden) return below.replaceChildren();
    const button = h("button", { class: "dw-primary dw-ask-ranks", type: "button", onclick: () => askOthers(button) }, widget ? say("Ask all ranks again") : say("Show all ranks"));
    below.replaceChildren(h("h4", null, say("The other ranks")), h("p", { class: "dw-soft" }, say("The tensors above are those of this process, one rank of a job. You can query all ranks of the job.")), control ? button : "");
    if (widget) showOthers(widget);
  }

  function askOthers(button) {
    button.disabled = true;
    ask(control, { ask: "ranks" }, (answer) => {
      button.disabled = false;
      complain(answer);
    });
  }

  async function showOthers(widget) {
    const inner = below.appendChild(h("div"));
    await (await host.getWidget(widget)).render({ el: inner, signal });
  }

  function end() {
    for (const button of below.querySelectorAll(".dw-ask-ranks")) button.disabled = true;
  }

  return { draw, below, end };
}
