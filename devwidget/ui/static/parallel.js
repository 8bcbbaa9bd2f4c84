// The Parallel tab: each DataParallel call drawn as it ran, and everything else that spreads the model.
import { chip, h, prose } from "./dom.js";
import { copyButton } from "./findings.js";
import { moduleLink, table } from "./tables.js";
import { say } from "./words.js";

// One call; `drawing` is its figure, and a click on a part of it is told to `picked`.
export function callSection(call, drawing, strip) {
  return h(
    "section",
    { class: "dw-parallel" },
    h("h4", null, call.title),
    h("p", { class: "dw-soft" }, call.summary),
    drawing?.el,
    strip,
    call.replicas.length ? replicaTable(call) : "",
    h("ul", { class: "dw-words" }, call.words.map((text) => h("li", null, prose(text)))),
    call.advice.map(advised),
  );
}

// The model on its devices.
export function mapSection({ words, rows, title }, drawing) {
  const ways = rows.map((texts) => h("tr", { class: "dw-way" }, texts.map((text, at) => h("td", { class: at > 1 ? "dw-number" : null }, text))));
  const head = [[say("from")], [say("to")], [say("forward"), "dw-number"], [say("backward"), "dw-number"]];
  return h(
    "section",
    { class: "dw-parallel dw-mapped" },
    h("h4", null, title ?? say("The model on its devices")),
    drawing.el,
    h("ul", { class: "dw-words" }, words.map((text) => h("li", null, text))),
    ways.length ? table(say("what crosses between the devices"), head, ways) : "",
  );
}

function advised({ about, text, code }) {
  return h(
    "div",
    { class: "dw-advice", "data-about": about },
    h("span", { class: "dw-tag" }, say("advice")),
    " ",
    prose(text),
    code ? h("div", { class: "dw-fix" }, h("pre", null, h("code", null, code)), copyButton(code, say("Copy the code"), say("copy"))) : "",
  );
}

// Wrappers, shards, hooks and device maps: what this process holds of each part.
export function spreadSection(card, reveal) {
  const number = "dw-number";
  const head = [[say("part")], [say("parts"), number], [say("in memory here")], [say("whole"), number], [say("how")]];
  const rows = card.rows.map(([name, parts, here, whole, note]) =>
    h("tr", { class: "dw-share" }, h("td", null, name), h("td", { class: number }, parts), h("td", null, here), h("td", { class: number }, whole), h("td", { class: "dw-soft" }, note)),
  );
  return h(
    "section",
    { class: "dw-parallel dw-spread", "data-kind": card.kind },
    h("h4", null, say(card.kind), " ", moduleLink(card, reveal)),
    h("ul", { class: "dw-words" }, card.words.map((text) => h("li", null, prose(text)))),
    card.code ? h("div", { class: "dw-fix" }, h("pre", null, h("code", null, card.code)), copyButton(card.code, say("Copy the code"), say("copy"))) : "",
    rows.length ? table(say("parts of {title}", { title: card.title }), head, rows) : "",
    card.more ? h("p", { class: "dw-soft" }, say("… and {count} more", { count: card.more })) : "",
  );
}

// Below the drawing: the figures of the part that was clicked, the line that called it, and the way to its row.
export function pickedStrip() {
  return h("p", { class: "dw-picked dw-soft", role: "status" }, say("Ribbons are copies, their thickness bytes to one scale. Click a part for its line and row."));
}

export function pick(strip, mark, reveal) {
  if (!mark) return;
  strip.replaceChildren(
    h("b", null, mark.title),
    ": ",
    ...prose(mark.text),
    mark.place ? h("span", { class: "dw-soft" }, `  ${mark.place} `) : " ",
    mark.code ? h("code", { class: "dw-code-line", title: mark.code }, mark.code) : "",
    moduleLink(mark, reveal),
  );
}

function replicaTable(call) {
  const number = "dw-number";
  const timed = call.replicas.some((each) => each.time);
  const head = [[say("device")], [say("card")], [say("samples"), number], [say("batch in"), number], [say("parameters in"), number], [say("outputs"), number], [say("gradients out"), number], [say("peak"), number], ...(timed ? [[say("forward"), number]] : [])];
  const rows = call.replicas.map((each) =>
    h(
      "tr",
      { class: "dw-replica", "data-device": each.device },
      h("td", null, chip(each.device)),
      h("td", { class: "dw-soft dw-nowrap", title: each.uuid }, each.card),
      ...[each.samples, each.input, each.parameters, each.output, each.gradients, each.peak, ...(timed ? [each.time] : [])].map((text) => h("td", { class: number }, text)),
    ),
  );
  const idle = call.idle.map((device) => h("tr", { class: "dw-idle", "data-device": device }, h("td", null, chip(device)), h("td", { colspan: timed ? 8 : 7, class: "dw-soft" }, say("the batch did not reach it"))));
  return table(say("replicas of {title}", { title: call.title }), head, [...rows, ...idle]);
}
