// Below the devices of a model: all ranks of the job of which this process is one, once they were asked.
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals-core";
import { html } from "../../../panel/static/base.js";
import { SECTIONS } from "../../../panel/static/sections.js";
import { say } from "../../../panel/static/words.js";

SECTIONS.push({ name: "ranks", open: openOthers });

function openOthers(panel) {
  const isAsking = signal(false);

  async function askOthers() {
    isAsking.value = true;
    await panel.ask({ ask: "ranks" });
    isAsking.value = false;
  }

  function below() {
    const { offered, widget } = panel.state.ranks ?? {};
    if (!offered && !widget) return "";
    const isHeld = isAsking.value || panel.ended.value;
    const words = widget ? say("Ask all ranks again") : say("Show all ranks");
    const button = html`<button class="dw-primary dw-ask-ranks" disabled=${isHeld} onclick=${askOthers}>${words}</button>`;
    return html`
      <section class="dw-parallel dw-others">
        <h4>${say("The other ranks")}</h4>
        <p class="dw-soft">${say("The tensors above are those of this process, one rank of a job. You can query all ranks of the job.")}</p>
        ${panel.control && button}
        ${widget && html`<${Child} key=${widget} page=${panel} name=${widget} />`}
      </section>
    `;
  }

  return { below };
}

// A widget inside another one.
function Child({ page, name }) {
  const place = useRef();
  useEffect(() => {
    const over = new AbortController();
    page.host.getWidget(name).then((inner) => over.signal.aborted || inner.render({ el: place.current, signal: over.signal }));
    return () => over.abort();
  }, []);
  return html`<div ref=${place} />`;
}
