// What holds a job up: each collective that does not end, with the ranks that came and those that did not.
import { html } from "../../../panel/static/base.js";
import { link, table } from "../../../panel/static/parts.js";
import { say } from "../../../panel/static/words.js";

export function heldView({ what, came, rows }, show) {
  const columns = [
    [say("ranks"), ({ who, first }) => link(who, () => show(first))],
    [say("state"), ({ said }) => said, "dw-held"],
    [say("line"), ({ place }) => html`<span class="dw-soft dw-nowrap">${place[0]}</span> <code>${place[1]}</code>`],
  ];
  return html`
    <section class="dw-queue">
      <h4>${say("Which ranks wait")} <span class="dw-soft">${what} · ${came}</span></h4>
      ${table(what, columns, rows, ({ role }) => ({ class: "dw-queue-row", "data-role": role }))}
    </section>
  `;
}
