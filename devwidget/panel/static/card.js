// A card that Python has drawn, below an exception or an edit: its buttons, and the cells that it writes.
import { signal } from "@preact/signals-core";
import { reversed, UNWRITTEN, writeCells } from "./apply.js";
import { html, KEYS, widget } from "./base.js";
import { Markup } from "./parts.js";
import { say } from "./words.js";

function open(page) {
  const isFolded = signal(page.model.get("folds")); // `card.css` folds the traceback above the card

  async function press(question) {
    const { cells, back } = await page.ask({ ask: question });
    if (!cells) return;
    const why = cells.length ? await writeCells(page.model, back ? reversed(cells) : cells) : "";
    page.ask({ ask: "written", why: why && say(UNWRITTEN[why]) });
  }

  function buttons({ buttons, folds }) {
    const asking = buttons.map(([question, words]) => html`<button class="dw-button" disabled=${page.ended.value} onclick=${() => press(question)}>${words}</button>`);
    const fold = html`<button class="dw-button" aria-expanded=${!isFolded.value} onclick=${() => (isFolded.value = !isFolded.value)}>${say("traceback")}</button>`;
    return html`<p class="dw-card-buttons">${asking}${folds && fold}</p>`;
  }

  if (page.model.get("writes")) press("apply");
  return () => html`<div class="dw dw-card" data-folds=${String(isFolded.value)} ...${KEYS}><${Markup} text=${page.state.html} />${buttons(page.state)}</div>`;
}

export default widget(open);
