// Findings as lines, the worst first and open, each with a message as a good compiler writes it.
import { Component } from "preact";
import { html } from "./base.js";
import { editRows, icon, severityIcon, triedWords } from "./edits.js";
import { codeToCopy, CopyButton, moduleLink, prose, traceLink, wordList } from "./parts.js";
import { say, sayCount, word } from "./words.js";

const COUNTS = {
  error: (count) => sayCount("{count} error", "{count} errors", count),
  warning: (count) => sayCount("{count} warning", "{count} warnings", count),
  info: (count) => sayCount("{count} hint", "{count} hints", count),
};

// What the two places of a finding are, where nothing was made or has failed.
const PLACES = { "absent-from-collective": [word("the missing rank is at"), word("the waiting rank is at")] };

// The cards of a trace, the worst first: what has ended the step is one too, with the number -1.
export function cardsOf({ findings = [], failure = null }) {
  const numbered = findings.map((card, number) => ({ ...card, number }));
  return failure ? [failureCard(failure), ...numbered] : numbered;
}

// The user's line, what is known of the cause, what to change, the traceback folded.
function failureCard(failure) {
  const fixes = failure.cures.map((cure) => ({ ...cure, summary: cure.text, confidence: say("choice"), state: "words" }));
  const text = [`${failure.headline}: ${failure.message}`, ...failure.frames, failure.raw].join("\n");
  const place = { ...failure, text: failure.source };
  return { ...failure, number: -1, severity: "error", operands: [], birth: null, fault: place, fixes, raised: failure, text };
}

// What a trace or a run has found. `act` has what can be done with a fix: `tryIt(finding, fix)` asks Python to try it, `apply` to
// write it, `isHeld` says that neither may be asked for now; a saved page has no `act`.
export class Findings extends Component {
  render({ traced }) {
    const cards = cardsOf(traced);
    return html`
      ${cards.length ? countLine(cards, traced) : nothingFound(traced)}
      ${cards.length > 0 && html`<div class="dw-findings" key=${traced}>${cards.map((card, at) => this.card(card, !at))}</div>`}
      ${checks(traced)}
    `;
  }

  card(card, isOpen) {
    return html`
      <details class="dw-finding dw-found" tabindex="-1" data-finding=${card.number} data-kind=${card.kind} data-severity=${card.severity} open=${isOpen}>
        <summary class="dw-finding-line">
          ${severityIcon(card.severity)}
          <h4>${prose(card.headline)}</h4>
          <span class="dw-kind">${card.kind}</span>
          <span class="dw-finding-module">${card.module}</span>
          <span class="dw-finding-place dw-mono">${card.place}</span>
          ${triedWords(card.fixes[0])}
        </summary>
        <div class="dw-finding-body">${this.body(card)}</div>
      </details>
    `;
  }

  body(card) {
    const { reveal, act } = this.props;
    const { number } = card;
    const [created, fails] = PLACES[card.kind] ?? [];
    const isEnd = number < 0;
    const failsWords = [isEnd && say("raised here"), card.severity === "error" && say("fails here"), say("happens here")].find(Boolean);
    const parts = card.fixes.map((fix, at) => fixPart(fix, act && { ...act, tryIt: () => act.tryIt(number, at), apply: () => act.apply(number, at) }));
    return html`
      ${card.why && html`<p class="dw-why">${prose(card.why)}</p>`}
      ${card.raised && html`<pre class="dw-message">${card.raised.message}</pre>`}
      ${source(card.birth, created ? say(created) : card.birthWords, true)}
      ${source(card.fault, fails ? say(fails) : failsWords)}
      ${card.operands.length > 0 && html`<ul class="dw-operands">${card.operands.map(operand)}</ul>`}
      ${wordList(card.notes)}
      ${isEnd ? parts : parts[0]}
      ${!isEnd && parts.length > 1 && otherWays(card.fixes.slice(1), parts.slice(1))}
      ${card.raised && traceback(card.raised)}
      <div class="dw-leads">
        ${moduleLink(card, reveal)}
        ${card.class && html`<span class="dw-soft">(${card.class})</span>`}
        ${traceLink(card, reveal)}
        ${card.fault && !card.fault.text && html`<span class="dw-soft" title=${card.fault.file}>${card.fault.place}</span>`}
        <${CopyButton} text=${card.text} label=${say("Copy this finding")} name=${say("copy as text")} />
      </div>
    `;
  }
}

// How many there are of each severity.
function countLine(cards, { checked = [] }) {
  const count = (severity) => cards.filter((card) => card.severity === severity).length;
  const present = Object.keys(COUNTS).filter(count);
  const checks = checked.length ? sayCount("{count} check", "{count} checks", checked.length) : "";
  return html`
    <div class="dw-counts">
      ${present.map((severity) => html`<span>${icon(severity)} ${COUNTS[severity](count(severity))}</span>`)}
      <span class="dw-soft">${checks}</span>
    </div>
  `;
}

// A step that did not run to its end may have had more findings.
function nothingFound({ checked }) {
  if (!checked.length) return html`<p class="dw-empty">${say("No code ran, so nothing was checked.")}</p>`;
  const words = sayCount("✓ No findings: {count} check passed.", "✓ No findings: {count} checks passed.", checked.length);
  return html`<p class="dw-clean">${words}</p>`;
}

function traceback({ frames, raw }) {
  if (!frames.length) return "";
  const words = sayCount("traceback, {count} frame", "traceback, {count} frames", frames.length);
  return html`<details class="dw-traceback"><summary>${words}</summary><pre tabindex="0">${[...frames, raw].join("\n")}</pre></details>`;
}

// The fixes after the first: folded, and named.
function otherWays(fixes, parts) {
  const named = fixes.map((fix) => fix.summary).join("; ");
  const words = say("other fixes ({count}): ", { count: fixes.length });
  return html`<details class="dw-others-ways"><summary>${words}<span class="dw-soft">${prose(named)}</span></summary>${parts}</details>`;
}

// One of the tensors that met: the one on the wrong device is bold, the others quiet.
function operand({ text, culprit }) {
  return html`<li class=${`dw-mono${culprit ? " dw-culprit" : ""}`} title=${culprit ? say("on the wrong device") : null}>${text}</li>`;
}

function source(site, what, isShownAlone = false) {
  if (!site || (!site.text && !isShownAlone)) return "";
  const facts = { what, ...site };
  const place = say("{what}: {place}", facts);
  if (!site.text) return html`<p class="dw-soft" title=${site.file}>${place}</p>`;
  const hasFunction = site.function && site.function !== "<module>";
  const caption = hasFunction ? say("{what}: {place} in {function}", facts) : place;
  return html`
    <figure class="dw-source">
      <figcaption title=${site.file}>${caption}</figcaption>
      <pre><span class="dw-line" aria-hidden="true">${site.line}</span><code>${site.text}</code></pre>
    </figure>
  `;
}

// A fix: how sure it is, what to do, the edit or the code; `act` has what can be done with it.
function fixPart(fix, act) {
  const edits = fix.edits ?? [];
  const facts = { fix: fix.summary };
  const title = say("Re-runs the step with and without this fix, then restores everything. Side effects such as file writes happen again.");
  const button = (look, words, label, run, title = null) => html`
    <button class=${`dw-button ${look}`} title=${title} aria-label=${label} disabled=${act.isHeld} onclick=${run}>${words}</button>
  `;
  return html`
    <div class="dw-cured">
      <div class="dw-cured-line">
        <span class="dw-tag">${prose(fix.confidence)}</span>
        <span class="dw-cured-words">${prose(fix.summary)}</span>
        ${act && edits.length > 0 && button("dw-apply-this", say("Apply"), say("Apply: {fix}", facts), act.apply)}
        ${act && fix.offered && button("dw-try", say("Verify fix"), say("Verify fix: {fix}", facts), act.tryIt, title)}
      </div>
      ${fix.code && !edits.length && codeToCopy(fix.code, say("Copy the fix"))}
      ${edits.map(edited)}
    </div>
  `;
}

function edited(edit) {
  return html`
    <figure class="dw-source">
      <figcaption title=${edit.file}>${edit.place}</figcaption>
      <div class="dw-fix">${editRows(edit.rows)}<${CopyButton} text=${edit.text} label=${say("Copy the new lines")} name=${say("copy")} /></div>
    </figure>
  `;
}

function checks({ checked = [], not_checked, not_restored = [], trials = [] }) {
  const list = (words, texts) => texts.length > 0 && html`<div>${words}${wordList(texts)}</div>`;
  return html`
    <div class="dw-checks dw-soft">
      ${checked.length > 0 && html`<p>${say("checked: {rules}", { rules: checked.join(", ") })}</p>`}
      ${list(say("not checked:"), not_checked)}
      ${list(say("not restored:"), not_restored)}
      ${trials.map((words) => html`<p>${prose(words)}</p>`)}
    </div>
  `;
}
