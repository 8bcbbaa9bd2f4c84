// The verdict: the worst finding in one line, its edit, and one button; after that, what was applied, and the way back.
import { createRef } from "preact";
import { reversed, runCellOf, UNWRITTEN, watchCells, writeCells } from "./apply.js";
import { Callable, html } from "./base.js";
import { editRows, icon, triedWords } from "./edits.js";
import { cardsOf } from "./findings.js";
import { traceFewer } from "./header.js";
import { CopyButton, copyText, link, prose } from "./parts.js";
import { inRow, say, sayCount, word } from "./words.js";

const MOST_ROWS = 4;
const PASTE = word("The new lines are on the clipboard. Paste them in {place}, run it, and trace again.");
const COPY = word("Copy the lines above to {place}, run it, and trace again.");
const TRACED = word("Edited {place} and traced again");
const WORKS = {
  now: word("Edited {place}; not traced yet"),
  cell: word("Edited {place}; re-run the cell to take effect"),
  below: word("Edited {place}. Run its cell and the cells below it again."),
  build: word("Edited {place}; build the model again to trace it"),
  restart: word("Edited {place}. Restart the kernel, and run the cells again."),
};

const newLines = (fix) => fix.edits.map((edit) => edit.text).join("\n");
const copyEdit = (fix) => html`<${CopyButton} text=${newLines(fix)} name=${say("Copy the edit")} look="dw-button" />`;

// `panel` has what it asks for, and shows what it leads to.
export class Verdict extends Callable {
  el = createRef();
  state = { at: 0, note: null }; // which finding is shown; what stands below it
  isAway = false; // what was asked has led to a cell

  // A new trace begins with its worst finding; what was applied answers what was asked.
  static getDerivedStateFromProps({ traced, applied }, before) {
    if (traced !== before.traced) return { traced, applied, at: 0, note: null };
    return applied === before.applied ? null : { applied, note: null };
  }

  componentDidMount() {
    this.watch();
  }

  getSnapshotBeforeUpdate() {
    return this.el.current.contains(document.activeElement);
  }

  componentDidUpdate(before, _, held) {
    if (before.applied !== this.props.applied) this.watch();
    if (this.props.isOver && this.state.note) this.tell(); // a question that is open there would write a file
    if (held && !this.el.current.contains(document.activeElement)) this.focusButton();
  }

  componentWillUnmount() {
    this.unwatch?.();
  }

  // Look for edits that are taken back in their cells.
  watch() {
    const { panel, applied } = this.props;
    this.unwatch?.();
    this.unwatch = applied.cells && panel.control && watchCells(panel.model, applied.cells, () => panel.run({ ask: "undo" }));
  }

  // What stands below the edit; nothing without parts.
  tell(...parts) {
    this.setState({ note: parts.length > 0 && html`<p class="dw-asked" role="alert">${parts}</p>` });
  }

  // -> the kernel says what is to be written; files are written by it, after a question, and cells by this page.
  async apply(finding, fix) {
    const { panel, traced } = this.props;
    const card = traced.findings[finding].fixes[fix];
    this.setState({ at: cardsOf(traced).findIndex(({ number }) => number === finding) });
    this.el.current.scrollIntoView({ block: "nearest" });
    const plan = await panel.ask({ ask: "apply", finding, fix });
    if (plan.error) return;
    if (plan.files.length) this.question(plan, card);
    else this.write(plan, card);
  }

  question(plan, card) {
    const words = say("Overwrite {files}? A backup is kept next to it.", { files: plan.files.join(", ") });
    const button = (text, act, ref) => html`<button ref=${ref} class="dw-button" onclick=${act}>${text}</button>`;
    const yes = button(say("Overwrite"), () => this.write(plan, card), (el) => el?.focus());
    const no = button(say("Do not overwrite"), () => this.tell());
    this.tell(words, " ", yes, " ", no, " ", copyEdit(card));
  }

  async write(plan, card) {
    const why = plan.cells.length ? await writeCells(this.props.panel.model, plan.cells) : "";
    if (!why) return this.leave({ ask: "applied" });
    const { place } = card.edits[0];
    const isCopied = await copyText(newLines(card));
    this.tell(say(UNWRITTEN[why]), " ", say(isCopied ? PASTE : COPY, { place }));
  }

  async undo(cells) {
    this.unwatch?.();
    const why = cells.length ? await writeCells(this.props.panel.model, reversed(cells)) : "";
    if (!why) return this.leave({ ask: "undo" });
    this.tell(say(UNWRITTEN[why]), " ", say("Undo the edit by hand."));
  }

  async runCells(cells) {
    for (const cell of reversed(cells)) {
      const isRun = await runCellOf(this.props.panel.model, cell);
      if (!isRun) return this.tell(say("Run the cell by hand. The panel then traces again."));
    }
  }

  // What was written is seen in its cell; when the kernel is done, this strip is in sight again, and its button at hand.
  leave(question) {
    this.isAway = true;
    this.props.panel.run(question);
  }

  comeBack(kind) {
    if (!this.isAway || !["done", "error", "refused", "cancelled", "moved"].includes(kind)) return;
    this.isAway = false;
    this.setState({}, () => {
      const el = this.el.current;
      el.parentElement?.scrollIntoView({ block: "nearest" }); // with before and after below it
      el.scrollIntoView({ block: "nearest" });
      this.focusButton();
    });
  }

  focusButton() {
    this.el.current.querySelector(".dw-undo, .dw-apply")?.focus({ preventScroll: true });
  }

  render() {
    const parts = this.parts();
    return html`<section ref=${this.el} class="dw-verdict" aria-label=${say("verdict")} hidden=${!parts.length}>${parts}</section>`;
  }

  parts() {
    const { traced, applied } = this.props;
    const done = applied.works ? [this.appliedPart(applied)] : [];
    if (!traced.summary || (applied.works && !applied.traced)) return done;
    const cards = cardsOf(traced);
    if (cards.length) return [...done, this.cardPart(cards[this.state.at], cards.length)];
    return done.length ? done : [cleanPart(traced)];
  }

  cardPart(card, count) {
    const fix = card.fixes[0];
    const rows = (fix?.edits ?? []).flatMap((edit) => edit.rows);
    const place = link(card.place || say("details"), () => this.props.panel.reveal({ finding: card.number }), { title: say("show the finding") });
    const said = card.number < 0 && html`<p class="dw-cure">${card.message.split("\n")[0]}</p>`;
    return part(
      card.severity,
      html`
        ${icon(card.severity)}<p class="dw-sentence"><b>${prose(card.headline)}</b> ${place}</p>
        ${triedWords(fix)}${fix?.edits?.length > 0 && this.applyButton(fix, card.number)}${this.fewer(card)}${this.stepper(count)}
      `,
      html`${said}${rows.length ? editRows(rows, MOST_ROWS) : fix && cureWords(fix.summary, fix.code)}${this.state.note}`,
    );
  }

  applyButton(fix, number) {
    if (!this.props.panel.control) return copyEdit(fix);
    return this.primary(say("Apply and trace again"), () => this.apply(number, 0));
  }

  // For a GPU that got no sample, or had no room.
  fewer({ kind, fixes }) {
    const { panel, traced } = this.props;
    const [idle] = traced.parallel.flatMap(({ advice }) => advice);
    const { samples } = fixes.find((each) => each.samples) ?? (kind === "parallel-io" && idle) ?? {};
    return traceFewer(samples, panel, "dw-primary dw-apply");
  }

  primary(text, act) {
    return html`<button class="dw-primary dw-apply" disabled=${this.props.isHeld} onclick=${act}>${text}</button>`;
  }

  // After the last finding comes the first.
  stepper(count) {
    const { at } = this.state;
    if (count < 2) return "";
    const step = (name, to, sign) => html`
      <button class="dw-icon" aria-label=${name} title=${name} onclick=${() => this.setState({ at: to % count, note: null })}>${sign}</button>
    `;
    const words = say("{number} of {count}", { number: at + 1, count });
    return html`<span class="dw-stepper">${step(say("previous finding"), at + count - 1, "‹")}${words}${step(say("next finding"), at + 1, "›")}</span>`;
  }

  appliedPart({ works, traced, edits, cells, count }) {
    const { panel, isHeld } = this.props;
    const place = edits.map((edit) => edit.place).join(", ");
    const left = traced ? this.props.traced.findings?.length : 0;
    const live = html`<span class="dw-soft"> ${say("The change is live: you do not need to re-run a cell.")}</span>`;
    const title = say("Undoes the most recent fix; fixes applied: {count}.", { count });
    const undo = html`<button class="dw-button dw-undo" title=${title} disabled=${isHeld} onclick=${() => this.undo(cells)}>${say("Undo")}</button>`;
    return part(
      "good",
      html`
        ${icon("good")}
        <p class="dw-sentence"><b>${say(traced ? TRACED : WORKS[works], { place })}</b>${traced && live}</p>
        ${works === "cell" && cells.length > 0 && this.primary(say("Run cell and trace"), () => this.runCells(cells))}
        ${panel.control && undo}
        ${left > 0 && html`<span class="dw-stepper">${say("{count} left", { count: left })}</span>`}
      `,
      html`${editRows(edits.flatMap((edit) => edit.rows).filter(([sign]) => sign === "+"), MOST_ROWS)}${this.state.note}`,
    );
  }
}

function cleanPart({ checked, skipped }) {
  if (!checked.length) return part("none", html`<p class="dw-sentence"><b>${say("No code ran, so nothing was checked.")}</b></p>`);
  const passed = sayCount("{count} check passed", "{count} checks passed", checked.length);
  const counts = inRow([passed, skipped && say("{count} not run", { count: skipped })]);
  return part("good", html`${icon("good")}<p class="dw-sentence"><b>${say("No problems in this step.")}</b><span class="dw-soft"> ${counts}</span></p>`);
}

function part(kind, line, below) {
  return html`<div class=${`dw-verdict-part dw-${kind}`}><div class="dw-verdict-line">${line}</div>${below}</div>`;
}

function cureWords(text, code) {
  return html`<div class="dw-cure">${prose(text)}${code && html`<pre><code>${code}</code></pre>`}</div>`;
}
