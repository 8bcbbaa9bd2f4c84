// The Devices tab: the picture that Python has drawn, made live, and below it in words what spreads the model.
import { chip, h, prose } from "./dom.js";
import { copyButton } from "./findings.js";
import { moduleLink, table } from "./tables.js";
import { say } from "./words.js";

// A picture as wide as its container. Details of the hovered mark are below it; a folded block expands if `unfold` is given.
export class Picture {
  constructor(className, { unfold, reveal }) {
    this.unfold = unfold;
    this.reveal = reveal;
    this.drawn = {};
    this.opened = new Set();
    this.every = false;
    /** @type {SVGElement[]} */
    this.marks = [];
    this.frame = h("div", { class: "dw-drawn" });
    this.told = h("p", { class: "dw-picked dw-soft", role: "status" });
    this.folds = h("div", { class: "dw-segments", role: "group", "aria-label": say("blocks") }, [false, true].map((every) => h("button", { class: "dw-filter-severity", type: "button", onclick: () => this.turn(every) }, every ? say("all blocks") : say("folded"))));
    this.el = h("section", { class: `dw-pictured ${className}` }, unfold ? h("div", { class: "dw-pictured-top" }, this.folds) : "", this.frame, this.told);
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.el);
    for (const kind of ["pointerover", "focusin"]) this.frame.addEventListener(kind, ({ target }) => this.tell(target.closest("[data-mark]")));
    this.frame.addEventListener("click", ({ target }) => this.pick(target.closest("[data-mark]")));
    this.frame.addEventListener("keydown", (event) => this.key(event));
    this.press();
  }

  // SVG texts by the width that they are drawn for.
  show(drawn) {
    this.drawn = drawn;
    this.shown = "";
    this.told.replaceChildren(say("Hover for details; click a stacked block to expand it."));
    this.fit();
  }

  fit() {
    const room = this.el.clientWidth;
    const widths = Object.keys(this.drawn).map(Number).sort((one, other) => one - other);
    const text = this.drawn[widths.filter((width) => width <= room).at(-1) ?? widths[0]] ?? "";
    if (text === this.shown || !room) return; // a hidden picture has no room
    this.shown = text;
    this.frame.replaceChildren(...(text ? [parsed(text)] : []));
    this.marks = [...this.frame.querySelectorAll("[data-mark]")];
    for (const [at, mark] of this.marks.entries()) {
      const words = wordsOf(mark);
      for (const [name, value] of Object.entries({ role: "button", tabindex: at ? "-1" : "0", "aria-label": words })) mark.setAttribute(name, value);
      if (!this.unfold) mark.removeAttribute("data-unfolds");
      if (mark.dataset.unfolds) mark.setAttribute("aria-expanded", "false");
    }
  }

  tell(mark) {
    if (!mark || mark === this.now) return;
    this.now?.classList.remove("dw-now");
    this.now = mark;
    mark.classList.add("dw-now");
    const [first, ...rest] = wordsOf(mark).split("\n");
    const { module, number } = mark.dataset;
    const link = module ? moduleLink({ path: module, module }, this.reveal) : number ? h("button", { class: "dw-link", type: "button", onclick: () => this.reveal({ move: mark.dataset }) }, say("show its line")) : "";
    this.told.replaceChildren(h("b", null, first), ...rest.map((line) => h("span", null, ...prose(line))), link);
  }

  pick(mark) {
    this.tell(mark);
    if (mark?.dataset.unfolds) this.turn(this.every, mark.dataset.unfolds);
  }

  // Ask for the picture with one block more unfolded; without one for the picture as it was.
  turn(every, key = "") {
    this.opened = new Set(key ? [...this.opened, key] : []);
    this.every = every;
    this.press();
    this.unfold?.({ opened: [...this.opened], every });
  }

  press() {
    [...this.folds.children].forEach((button, at) => button.setAttribute("aria-pressed", String(Boolean(at) === this.every && !this.opened.size)));
  }

  key(event) {
    const at = this.marks.findIndex((mark) => mark === document.activeElement);
    const last = this.marks.length - 1;
    const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (event.key === "Enter" || event.key === " ") this.pick(this.marks[at]);
    else if (to === undefined) return;
    else {
      const mark = this.marks[Math.max(0, Math.min(last, to))];
      this.marks.forEach((each) => each.setAttribute("tabindex", each === mark ? "0" : "-1"));
      mark.focus();
    }
    event.preventDefault();
  }

  close() {
    this.sizes.disconnect();
  }
}

const wordsOf = (mark) => mark.firstChild?.textContent ?? "";

// Python has escaped every text of the model in it; as XML it can hold no script of an HTML page either.
function parsed(text) {
  const svg = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  svg.setAttribute("role", "group");
  return svg;
}

// One call of DataParallel in figures and words.
export function callSection(call) {
  return h(
    "section",
    { class: "dw-parallel" },
    h("h4", null, call.title),
    h("p", { class: "dw-soft" }, call.summary),
    call.replicas.length ? replicaTable(call) : "",
    h("ul", { class: "dw-words" }, call.words.map((text) => h("li", null, prose(text)))),
    call.advice.map(advised),
  );
}

// What the picture says in sentences.
export function wordList(words) {
  return words?.length ? h("ul", { class: "dw-words" }, words.map((text) => h("li", null, prose(text)))) : "";
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
  const noted = card.rows.some((row) => row[4]);
  const head = [[say("part")], [say("modules"), number], [say("in this process")], [say("total"), number], ...(noted ? [[say("note")]] : [])];
  const rows = card.rows.map(([name, parts, here, whole, note]) =>
    h("tr", { class: "dw-share" }, h("td", null, name), h("td", { class: number }, parts), h("td", null, here), h("td", { class: number }, whole), noted && h("td", { class: "dw-soft" }, note)),
  );
  return h(
    "section",
    { class: "dw-parallel dw-spread", "data-kind": card.kind },
    h("h4", null, card.title, " ", card.path === null ? "" : moduleLink(card, reveal)),
    h("ul", { class: "dw-words" }, card.words.map((text) => h("li", null, prose(text)))),
    card.code ? h("div", { class: "dw-fix" }, h("pre", null, h("code", null, card.code)), copyButton(card.code, say("Copy the code"), say("copy"))) : "",
    rows.length ? table(say("parts of {title}", { title: card.title }), head, rows) : "",
    card.more ? h("p", { class: "dw-soft" }, say("… and {count} more", { count: card.more })) : "",
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
  const idle = call.idle.map((device) => h("tr", { class: "dw-idle", "data-device": device }, h("td", null, chip(device)), h("td", { colspan: timed ? 8 : 7, class: "dw-soft" }, say("idle: it got no samples"))));
  return table(say("replicas of {title}", { title: call.title }), head, [...rows, ...idle]);
}
