// The drawer of one row: where its class is defined, its findings, each of its tensors.
import { causeWords, chip, h, prose, traceLink } from "./dom.js";
import { say } from "./words.js";

// `cards` with the numbers of their findings; `lead` goes to a finding, or to a place of the timeline.
export function detailView(detail, cards, hops, close, lead) {
  const title = h(
    "div",
    { class: "dw-detail-title" },
    h("strong", null, detail.path),
    h("span", { class: "dw-soft" }, detail.class),
    ...detail.facts.map((fact) => h("span", { class: "dw-tag" }, fact)),
    detail.defined && h("span", { class: "dw-soft", title: detail.defined.file }, say("class at {place}", { place: detail.defined.place })),
    h("button", { class: "dw-icon", type: "button", "aria-label": say("Close detail"), title: say("Close (Escape)"), onclick: close }, "✕"),
  );
  const notes = cards.map(([finding, card]) =>
    h("div", { class: `dw-detail-finding dw-${card.severity}` }, h("b", null, say(card.severity)), " ", ...prose(card.headline), " ", h("button", { class: "dw-link", type: "button", onclick: () => lead({ finding }) }, say("why and how to fix"))),
  );
  return [title, ...notes, hops.length ? hopList(hops, lead) : "", detail.tensors.length ? tensorTable(detail.tensors) : h("p", { class: "dw-soft" }, say("no tensors of its own"))];
}

// What crossed between devices while the module ran.
function hopList(hops, lead) {
  const line = (hop) =>
    h("li", { class: "dw-detail-hop", "data-cause": hop.cause }, chip(hop.source), " → ", chip(hop.target), ` ${hop.bytes}, ${hop.count} × ${hop.what} `, h("span", { class: "dw-soft" }, ...causeWords(hop.cause), `, ${say(hop.phase)} `), hop.place, hop.code ? h("code", { class: "dw-code-line" }, hop.code) : "", " ", traceLink(hop, lead));
  return h("ul", { class: "dw-detail-hops", "aria-label": say("hops") }, hops.map(line));
}

function tensorTable(tensors) {
  const rows = tensors.slice(0, 200).map((each) =>
    h(
      "tr",
      null,
      h("td", { class: "dw-mono" }, each.name),
      h("td", null, each.role),
      h("td", { class: "dw-mono" }, each.type),
      h("td", null, chip(each.device)),
      h("td", { class: "dw-number" }, each.bytes),
      h("td", null, each.grad),
      h("td", { class: "dw-soft" }, each.note),
    ),
  );
  const more = tensors.length > 200 ? h("p", { class: "dw-soft" }, say("… and {count} more", { count: tensors.length - 200 })) : "";
  const head = h("tr", null, [say("tensor"), say("kind"), say("type"), say("device"), say("bytes"), say("gradient"), say("note")].map((text) => h("th", { scope: "col" }, text)));
  return h("div", { class: "dw-scroll-x" }, h("table", { class: "dw-table" }, h("thead", null, head), h("tbody", null, rows)), more);
}
