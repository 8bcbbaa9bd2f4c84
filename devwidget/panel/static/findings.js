// Findings as lines, the worst first and open, each with a message as a good compiler writes it.
import { h, hueOf, prose, traceLink } from "./dom.js";
import { editRows, icon, severityIcon, triedWords } from "./edits.js";
import { moduleLink } from "./tables.js";
import { say, sayCount, word } from "./words.js";

const COUNTS = {
  error: (count) => sayCount("{count} error", "{count} errors", count),
  warning: (count) => sayCount("{count} warning", "{count} warnings", count),
  info: (count) => sayCount("{count} hint", "{count} hints", count),
};

// What the two places of a finding are, where nothing was made or has failed.
const PLACES = { "absent-from-collective": [word("the missing rank is at"), word("the waiting rank is at")] };

// `act.tryIt(finding, fix)` asks Python to try a fix, `act.apply(finding, fix)` to write it; a saved page has no `act`.
export function findingsView(traced, reveal, none, act) {
  if (!traced.summary) return [none(say("what is wrong, the line, and the fix"))];
  const cards = traced.findings.map((card, number) => findingCard(card, number, reveal, act));
  // A step that did not run to its end may have had more findings.
  const said = traced.checked.length ? h("p", { class: "dw-clean" }, sayCount("✓ No findings: {count} check passed.", "✓ No findings: {count} checks passed.", traced.checked.length)) : h("p", { class: "dw-empty" }, say("No code ran, so nothing was checked."));
  const clean = cards.length || traced.failure ? "" : said;
  if (cards.length && !traced.failure) cards[0].open = true;
  const list = cards.length ? h("div", { class: "dw-findings" }, cards) : "";
  return [traced.failure ? failureCard(traced.failure, reveal) : "", filterBar(traced, cards), clean, list, checks(traced)].filter(Boolean);
}

// How many there are of each severity; a click hides those lines, or shows them again.
function filterBar({ findings, checked }, cards) {
  if (!cards.length) return "";
  const button = (severity) => {
    const mine = cards.filter((_, at) => findings[at].severity === severity);
    if (!mine.length) return "";
    const pressed = h("button", { class: "dw-filter-severity", type: "button", "aria-pressed": "true", title: say("show or hide these findings") }, icon(severity), h("span", null, COUNTS[severity](mine.length)));
    pressed.addEventListener("click", () => {
      const shown = pressed.getAttribute("aria-pressed") !== "true";
      pressed.setAttribute("aria-pressed", String(shown));
      for (const card of mine) card.hidden = !shown;
    });
    return pressed;
  };
  return h("div", { class: "dw-filter-bar" }, h("div", { class: "dw-segments" }, Object.keys(COUNTS).map(button)), h("span", { class: "dw-soft" }, checked.length ? sayCount("{count} check", "{count} checks", checked.length) : ""));
}

// What ended the step: the user's line, what is known of the cause, what to change, the traceback folded.
function failureCard(card, reveal) {
  const where = h("div", { class: "dw-where" }, moduleLink(card, reveal), card.source ? source({ ...card, text: card.source }, say("raised here")) : h("span", { class: "dw-soft" }, ` ${card.place}`));
  const cures = card.cures.map((cure) => fixPart({ ...cure, summary: cure.text, confidence: say("choice"), state: "words" }));
  return h(
    "article",
    { class: "dw-finding dw-failure", "data-kind": card.kind, "data-severity": "error" },
    h("header", { class: "dw-finding-line" }, severityIcon("error"), h("h4", null, ...prose(card.headline)), h("span", { class: "dw-kind" }, card.kind), copyButton([`${card.headline}: ${card.message}`, ...card.frames, card.raw].join("\n"), say("Copy this exception"), say("copy"))),
    h("div", { class: "dw-finding-body" }, h("pre", { class: "dw-message" }, card.message), where, notes(card.notes), cures, traceback(card)),
  );
}

function traceback({ frames, raw }) {
  return frames.length ? h("details", { class: "dw-traceback" }, h("summary", null, sayCount("traceback, {count} frame", "traceback, {count} frames", frames.length)), h("pre", { tabindex: "0" }, [...frames, raw].join("\n"))) : "";
}

function findingCard(card, number, reveal, act) {
  const body = h("div", { class: "dw-finding-body" });
  const found = h(
    "details",
    { class: "dw-finding dw-found", tabindex: "-1", "data-kind": card.kind, "data-severity": card.severity },
    h(
      "summary",
      { class: "dw-finding-line" },
      severityIcon(card.severity),
      h("h4", null, ...prose(card.headline)),
      h("span", { class: "dw-kind" }, card.kind),
      h("span", { class: "dw-finding-module" }, card.module),
      h("span", { class: "dw-finding-place dw-mono" }, card.place),
      triedWords(card.fixes[0]),
    ),
    body,
  );
  body.append(...findingBody(card, number, reveal, act).filter(Boolean));
  return found;
}

function findingBody(card, number, reveal, act) {
  const [first, ...others] = card.fixes;
  const [born, fails] = PLACES[card.kind] ?? [];
  const part = (fix, at) => fixPart(fix, act && { tryIt: () => act.tryIt(number, at), apply: () => act.apply(number, at) });
  return [
    card.why ? h("p", { class: "dw-why" }, ...prose(card.why)) : "",
    card.raised ? h("pre", { class: "dw-message" }, card.raised.message) : "",
    source(card.birth, born ? say(born) : card.birthWords, true),
    source(card.fault, fails ? say(fails) : card.severity === "error" ? say("fails here") : say("happens here")),
    operands(card.operands),
    notes(card.notes),
    first ? part(first, 0) : "",
    others.length ? otherWays(others.map((fix, at) => [fix, part(fix, at + 1)])) : "",
    card.raised ? traceback(card.raised) : "",
    h(
      "div",
      { class: "dw-leads" },
      moduleLink(card, reveal),
      card.class ? h("span", { class: "dw-soft" }, `(${card.class})`) : "",
      traceLink(card, reveal),
      card.fault && !card.fault.text ? h("span", { class: "dw-soft", title: card.fault.file }, card.fault.place) : "",
      copyButton(card.text, say("Copy this finding"), say("copy as text")),
    ),
  ];
}

function notes(texts) {
  return texts.length ? h("ul", { class: "dw-notes-list" }, texts.map((text) => h("li", null, ...prose(text)))) : "";
}

// The cures after the first: folded, and named.
function otherWays(ways) {
  const named = ways.map(([fix]) => fix.summary).join("; ");
  const line = h("summary", null, say("other fixes ({count}): ", { count: ways.length }), h("span", { class: "dw-soft" }, ...prose(named)));
  return h("details", { class: "dw-others-ways" }, line, ways.map(([, part]) => part));
}

// The tensors that met: the one on the wrong device bold and in its device's colour, the others quiet.
function operands(cards) {
  const item = ({ text, device, culprit }) => h("li", { class: `dw-mono${culprit ? " dw-culprit" : ""}`, style: `--dw-hue:${hueOf(device)}`, title: culprit && say("on the wrong device") }, text);
  return cards.length ? h("ul", { class: "dw-operands" }, cards.map(item)) : "";
}

function source(site, label, shownAlone = false) {
  if (!site || !site.text) return site && shownAlone ? h("p", { class: "dw-soft", title: site.file }, say("{what}: {place}", { what: label, place: site.place })) : "";
  const facts = { what: label, ...site };
  const caption = site.function && site.function !== "<module>" ? say("{what}: {place} in {function}", facts) : say("{what}: {place}", facts);
  return h(
    "figure",
    { class: "dw-source" },
    h("figcaption", { title: site.file }, caption),
    h("pre", null, h("span", { class: "dw-line", "aria-hidden": "true" }, site.line), h("code", null, site.text)),
  );
}

// A cure: how sure it is, what to do, the edit or the code; `act` has what can be done with it.
function fixPart(fix, act) {
  const buttons = [
    fix.edits?.length && act ? h("button", { class: "dw-button dw-apply-this", type: "button", "aria-label": say("Apply: {fix}", { fix: fix.summary }), onclick: act.apply }, say("Apply")) : "",
    fix.offered && act ? tryButton(fix, act.tryIt) : "",
  ];
  return h(
    "div",
    { class: "dw-cured" },
    h("div", { class: "dw-cured-line" }, h("span", { class: "dw-tag" }, ...prose(fix.confidence)), h("span", { class: "dw-cured-words" }, ...prose(fix.summary)), ...buttons),
    fix.code && !fix.edits?.length ? h("div", { class: "dw-fix" }, h("pre", null, h("code", null, fix.code)), copyButton(fix.code, say("Copy the fix"), say("copy"))) : "",
    ...(fix.edits ?? []).map(edited),
  );
}

function tryButton(fix, tryIt) {
  const title = say("Re-runs the step with and without this fix, then restores everything. Side effects such as file writes happen again.");
  return h("button", { class: "dw-button dw-try", type: "button", title, "aria-label": say("Verify fix: {fix}", { fix: fix.summary }), onclick: tryIt }, say("Verify fix"));
}

function edited(edit) {
  return h(
    "figure",
    { class: "dw-source" },
    h("figcaption", { title: edit.file }, edit.place),
    h("div", { class: "dw-fix" }, editRows(edit.rows), copyButton(edit.text, say("Copy the new lines"), say("copy"))),
  );
}

export function copyButton(text, label, name) {
  const button = h("button", { class: "dw-plain dw-copy", type: "button", "aria-label": label, title: label }, name);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = say("copied");
    } catch (error) {
      button.textContent = say("cannot copy");
      button.title = error.message;
    }
    setTimeout(() => (button.textContent = name), 1500);
  });
  return button;
}

function checks(traced) {
  const skipped = traced.not_checked.map((reason) => h("li", null, ...prose(reason)));
  const lost = traced.not_restored.map((what) => h("li", null, ...prose(what)));
  return h(
    "div",
    { class: "dw-checks dw-soft" },
    traced.checked.length ? h("p", null, say("checked: {rules}", { rules: traced.checked.join(", ") })) : "",
    skipped.length ? h("div", null, say("not checked:"), h("ul", null, skipped)) : "",
    lost.length ? h("div", null, say("not restored:"), h("ul", null, lost)) : "",
    ...(traced.trials ?? []).map((words) => h("p", null, ...prose(words))),
  );
}
