// What holds a job up: each collective that does not end drawn once, as a line on which those stand that came.
import { h } from "../../../panel/static/dom.js";
import { say, word } from "../../../panel/static/words.js";

const ROLES = { absent: word("not reached"), unknown: word("unknown"), waiting: word("waits"), behind: word("waits in another collective") };

export function heldView({ held }, show) {
  return (held ?? []).map(({ what, came, rows }) =>
    h(
      "section",
      { class: "dw-queue" },
      h("h4", null, say("Which ranks wait"), " ", h("span", { class: "dw-soft" }, `${what} · ${came}`)),
      h(
        "div",
        { class: "dw-queue-rows", role: "table", "aria-label": what },
        rows.map(({ role, who, first, place, said }) =>
          h(
            "div",
            { class: `dw-queue-row dw-queue-${role}`, role: "row" },
            h("span", { class: "dw-queue-who", role: "cell" }, h("button", { class: "dw-link", type: "button", onclick: () => show(first) }, who)),
            h("span", { class: "dw-queue-line", role: "cell", title: say(ROLES[role]), "aria-label": say(ROLES[role]) }, h("i", { "aria-hidden": "true" })),
            h("span", { class: "dw-queue-said", role: "cell" }, said),
            h("span", { class: "dw-queue-place", role: "cell" }, h("span", { class: "dw-soft" }, place[0]), " ", h("code", null, place[1])),
          ),
        ),
      ),
    ),
  );
}
