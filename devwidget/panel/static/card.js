// A card that Python has drawn, below an exception or an edit: its buttons, and the cells that it writes.
import { reversed, UNWRITTEN, writeCells } from "./apply.js";
import { html, KEYS, widget } from "./base.js";
import { Markup } from "./parts.js";
import { say } from "./words.js";

function open(page) {
  async function press(question) {
    const { cells, back } = await page.ask({ ask: question });
    if (!cells) return;
    const why = cells.length ? await writeCells(page.model, back ? reversed(cells) : cells) : "";
    page.ask({ ask: "written", why: why && say(UNWRITTEN[why]) });
  }

  function buttons({ buttons, folds }) {
    const asking = buttons.map(([question, words]) => html`<button class="dw-button" disabled=${page.ended.value} onclick=${() => press(question)}>${words}</button>`);
    const fold = html`<details class="dw-card-fold"><summary>${say("traceback")}</summary></details>`; // `card.css` shows it above the card
    return html`<div class="dw-card-buttons">${asking}${folds && fold}</div>`;
  }

  if (page.model.get("writes")) press("apply");
  return () => html`<div class="dw dw-card" ...${KEYS}><${Markup} text=${page.state.html} />${buttons(page.state)}</div>`;
}

export default widget(open);
