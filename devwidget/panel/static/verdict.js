// The verdict: the worst finding in one line, its edit, and one button; after that, what was applied, and the way back.
import { reversed, runCellOf, watchCells, writeCells } from "./apply.js";
import { ask, h, prose } from "./dom.js";
import { editRows, icon, triedWords } from "./edits.js";
import { inRow, say, sayCount, word } from "./words.js";

const MOST_ROWS = 4;
const UNWRITTEN = {
  host: word("Only JupyterLab and Notebook 7 let a panel edit a cell."),
  cell: word("The cell was not found: it was re-run, copied or deleted."),
  changed: word("The cell was edited on that line after it ran."),
};
const TRACED = word("Edited {place} and traced again");
const WORKS = {
  now: word("Edited {place}; not traced yet"),
  cell: word("Edited {place}; re-run the cell to take effect"),
  later: word("Edited {place}; build the model again to trace it"),
};

export class Verdict {
  constructor({ model, control, run, complain, drawn, open }) {
    this.model = model;
    this.control = control; // without it the page is a saved one
    this.run = run; // called with a question that takes a while
    this.complain = complain; // called with an answer that tells what went wrong
    this.drawn = drawn; // called when its buttons are new
    this.open = open; // called with the number of a finding, or with -1 for the failure
    this.traced = null;
    this.applied = null;
    this.at = 0; // which of the findings is shown
    this.note = null; // words, or an element, below what is shown
    this.isAway = false; // what was asked has led to a cell
    this.unwatch = () => {}; // looks no more for edits that are taken back in their cells
    this.el = h("section", { class: "dw-verdict", "aria-label": say("verdict"), hidden: true });
  }

  // Drawn anew after each trace, and after what was applied; a new trace begins with its worst finding.
  show(traced, applied) {
    if (traced !== this.traced) this.at = 0;
    this.traced = traced;
    this.applied = applied;
    this.note = null;
    this.unwatch();
    if (applied?.cells && this.control) this.unwatch = watchCells(this.model, applied.cells, () => this.run({ ask: "undo" }));
    this.draw();
  }

  draw() {
    const parts = this.parts();
    const held = this.el.contains(document.activeElement);
    this.el.hidden = !parts.length;
    this.el.replaceChildren(...parts);
    if (held) this.focusButton();
    this.drawn();
  }

  parts() {
    const { traced, applied } = this;
    const done = applied?.works ? [this.appliedPart(applied)] : [];
    if (!traced?.summary || (applied?.works && !applied.traced)) return done;
    if (traced.failure) return [...done, this.failurePart(traced.failure)];
    if (traced.findings.length) return [...done, this.findingPart(traced.findings[this.at])];
    return done.length ? done : [this.cleanPart(traced)];
  }

  findingPart(card) {
    const fix = card.fixes[0];
    const place = h("button", { class: "dw-link", type: "button", title: say("show the finding"), onclick: () => this.open(this.at) }, card.place);
    const rows = (fix?.edits ?? []).flatMap((edit) => edit.rows);
    const cure = fix && !rows.length ? cureWords(fix.summary, fix.code) : "";
    return part(
      card.severity,
      h("div", { class: "dw-verdict-line" }, icon(card.severity), h("p", { class: "dw-sentence" }, h("b", null, ...prose(card.headline)), card.place ? [" ", place] : ""), triedWords(fix), fix?.edits?.length ? this.applyButton(fix) : "", this.stepper()),
      rows.length ? editRows(rows, MOST_ROWS) : cure,
      this.note ?? "",
    );
  }

  applyButton(fix) {
    if (!this.control) return copyEdit(fix);
    return primary(say("Apply and trace again"), () => this.apply(this.at, 0));
  }

  stepper() {
    const { length } = this.traced.findings;
    if (length < 2) return "";
    const step = (name, by, sign) => h("button", { class: "dw-icon dw-step", type: "button", "aria-label": name, title: name, disabled: !(this.at + by in this.traced.findings), onclick: () => this.step(by) }, sign);
    const words = say("{number} of {count}", { number: this.at + 1, count: length });
    return h("span", { class: "dw-stepper" }, step(say("previous finding"), -1, "‹"), words, step(say("next finding"), 1, "›"));
  }

  step(by) {
    this.at += by;
    this.note = null;
    this.draw();
    const buttons = this.el.querySelectorAll(".dw-step");
    const wanted = buttons[by < 0 ? 0 : 1];
    (wanted.disabled ? buttons[by < 0 ? 1 : 0] : wanted).focus();
  }

  failurePart(failure) {
    const place = h("button", { class: "dw-link", type: "button", onclick: () => this.open(-1) }, failure.place || say("details"));
    const said = failure.message.split("\n")[0];
    return part("error", h("div", { class: "dw-verdict-line" }, icon("error"), h("p", { class: "dw-sentence" }, h("b", null, ...prose(failure.headline)), " ", place)), h("p", { class: "dw-cure" }, said), ...failure.cures.slice(0, 1).map(({ text, code }) => cureWords(text, code)));
  }

  cleanPart({ checked, skipped }) {
    const words = checked.length ? say("No problems in this step.") : say("No code ran, so nothing was checked.");
    const left = skipped ? say("{count} not run", { count: skipped }) : "";
    const counts = checked.length ? inRow([sayCount("{count} check passed", "{count} checks passed", checked.length), left]) : "";
    return part(checked.length ? "clean" : "none", h("div", { class: "dw-verdict-line" }, checked.length ? icon("tried") : "", h("p", { class: "dw-sentence" }, h("b", null, words), h("span", { class: "dw-soft" }, ` ${counts}`))));
  }

  appliedPart({ works, traced, edits, cells, count }) {
    const words = traced ? TRACED : WORKS[works];
    const place = edits.map((edit) => edit.place).join(", ");
    const left = traced && this.traced.findings?.length ? h("span", { class: "dw-stepper" }, say("{count} left", { count: this.traced.findings.length })) : "";
    const again = works === "cell" && cells.length ? primary(say("Run cell and trace"), () => this.runCells(cells)) : "";
    const undo = this.control ? h("button", { class: "dw-button dw-undo", type: "button", title: say("Undoes the most recent fix; fixes applied: {count}.", { count }), onclick: () => this.undo(cells) }, say("Undo")) : "";
    return part("clean", h("div", { class: "dw-verdict-line" }, icon("tried"), h("p", { class: "dw-sentence" }, h("b", null, say(words, { place })), traced ? h("span", { class: "dw-soft" }, " ", say("The change is live: you do not need to re-run a cell.")) : ""), again, undo, left), editRows(edits.flatMap((edit) => edit.rows).filter(([sign]) => sign === "+"), MOST_ROWS), this.note ?? "");
  }

  // -> the kernel says what is to be written; files are written by it, after a question, and cells by this page.
  apply(finding, fix) {
    const card = this.traced.findings[finding].fixes[fix];
    ask(this.control, { ask: "apply", finding, fix }, (plan) => {
      if (plan.error) return this.complain(plan);
      if (plan.files.length) this.question(plan, card);
      else this.write(plan, card);
    });
  }

  question(plan, card) {
    const words = say("Overwrite {files}? A backup is kept next to it.", { files: plan.files.join(", ") });
    const yes = h("button", { class: "dw-button", type: "button", onclick: () => this.write(plan, card) }, say("Overwrite"));
    const no = h("button", { class: "dw-button", type: "button", onclick: () => this.tell("") }, say("Do not overwrite"));
    this.tell(h("p", { class: "dw-asked", role: "alert" }, words, " ", yes, " ", no, " ", copyEdit(card)));
    yes.focus();
  }

  async write(plan, card) {
    const why = plan.cells.length ? await writeCells(this.model, plan.cells) : "";
    if (!why) return this.leave({ ask: "applied" });
    const copied = await copyText(newLines(card));
    this.tell(h("p", { class: "dw-asked", role: "alert" }, say(UNWRITTEN[why]), " ", copied ? say("The new lines are on the clipboard. Paste them in {place}, run it, and trace again.", { place: card.edits[0].place }) : say("Copy the lines above to {place}, run it, and trace again.", { place: card.edits[0].place })));
  }

  async undo(cells) {
    this.unwatch();
    const why = cells.length ? await writeCells(this.model, reversed(cells)) : "";
    if (!why) return this.leave({ ask: "undo" });
    this.tell(h("p", { class: "dw-asked", role: "alert" }, say(UNWRITTEN[why]), " ", say("Undo the edit by hand.")));
  }

  async runCells(cells) {
    for (const cell of reversed(cells)) if (!(await runCellOf(this.model, cell))) return this.askToRun();
  }

  askToRun() {
    this.tell(h("p", { class: "dw-asked", role: "alert" }, say("Run the cell by hand. The panel then traces again.")));
  }

  // What was written is seen in its cell; when the kernel is done, this strip is in sight again, and its button at hand.
  leave(question) {
    this.isAway = true;
    this.run(question);
  }

  comeBack() {
    if (!this.isAway || !["done", "error", "refused", "moved"].includes(this.model.get("status")?.kind)) return;
    this.isAway = false;
    this.el.parentElement?.scrollIntoView({ block: "nearest" }); // with before and after below it
    this.el.scrollIntoView({ block: "nearest" });
    this.focusButton();
  }

  focusButton() {
    this.el.querySelector(".dw-undo, .dw-apply")?.focus({ preventScroll: true });
  }

  tell(note) {
    this.note = note;
    this.draw();
  }
}

function part(kind, ...children) {
  return h("div", { class: `dw-verdict-part dw-verdict-${kind}` }, ...children);
}

function cureWords(text, code) {
  return h("div", { class: "dw-cure" }, ...prose(text), code ? h("pre", null, h("code", null, code)) : "");
}

function primary(text, onclick) {
  return h("button", { class: "dw-primary dw-apply", type: "button", onclick }, text);
}

const newLines = (fix) => fix.edits.map((edit) => edit.text).join("\n");

function copyEdit(fix) {
  const button = h("button", { class: "dw-button", type: "button" }, say("Copy the edit"));
  button.addEventListener("click", async () => (button.textContent = (await copyText(newLines(fix))) ? say("copied") : say("cannot copy")));
  return button;
}

// Whether it is on the clipboard: a page that is no secure context has none.
function copyText(text) {
  return navigator.clipboard ? navigator.clipboard.writeText(text).then(() => true, () => false) : Promise.resolve(false);
}
