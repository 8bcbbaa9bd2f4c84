// What holds a job up: each collective that does not end drawn once, as a line on which those stand that came.
import { html } from "../../../panel/static/base.js";
import { link } from "../../../panel/static/parts.js";
import { say, word } from "../../../panel/static/words.js";

const ROLES = { absent: word("not reached"), unknown: word("unknown"), waiting: word("waits"), behind: word("waits in another collective") };

export function heldView({ what, came, rows }, show) {
  return html`
    <section class="dw-queue">
      <h4>${say("Which ranks wait")} <span class="dw-soft">${what} · ${came}</span></h4>
      <div class="dw-queue-rows" role="table" aria-label=${what}>${rows.map((row) => heldRow(row, show))}</div>
    </section>
  `;
}

function heldRow({ role, who, first, place, said }, show) {
  const words = say(ROLES[role]);
  return html`
    <div class=${`dw-queue-row dw-queue-${role}`} role="row">
      <span class="dw-queue-who" role="cell">${link(who, () => show(first))}</span>
      <span class="dw-queue-line" role="cell" title=${words} aria-label=${words}><i aria-hidden="true" /></span>
      <span class="dw-queue-said" role="cell">${said}</span>
      <span class="dw-queue-place" role="cell"><span class="dw-soft">${place[0]}</span> <code>${place[1]}</code></span>
    </div>
  `;
}
