// Findings as cards, written like a good compiler's messages.
import { h, hueOf, prose, traceLink } from "./dom.js";
import { moduleLink } from "./tables.js";
import { say } from "./words.js";

const MARKS = { error: "✖", warning: "▲", info: "ℹ" };

// `tryIt(finding, fix)` asks Python to try a fix; without it, on a saved page, none is offered.
export function findingsView(traced, reveal, none, tryIt) {
  if (!traced.summary) return [none(say("what is wrong, on which line, and the edit that mends it"))];
  const cards = traced.findings.map((card, number) => findingCard(card, reveal, tryIt && ((fix) => tryIt(number, fix))));
  // Of a step that did not run to its end nobody knows whether there was nothing to find.
  const said = traced.checked.length ? h("p", { class: "dw-clean" }, say("✓ Nothing found, {count} checks.", { count: traced.checked.length })) : h("p", { class: "dw-empty" }, say("Nothing ran, so nothing was checked."));
  const clean = cards.length || traced.failure ? "" : said;
  return [traced.failure ? failureCard(traced.failure, reveal) : "", clean, ...cards, checks(traced)].filter(Boolean);
}

// What ended the step: the user's line, what is known of the cause, what to change, the traceback folded.
function failureCard(card, reveal) {
  const where = h("dd", null, moduleLink(card, reveal), card.source ? source({ ...card, text: card.source }, say("raised here")) : h("span", { class: "dw-soft" }, ` ${card.place}`));
  const folded = h("details", { class: "dw-traceback" }, h("summary", null, say("traceback, {count} frames", { count: card.frames.length })), h("pre", { tabindex: "0" }, [...card.frames, card.raw].join("\n")));
  const entries = [entry(say("where"), where), ...card.notes.map((note) => entry(say("note"), h("dd", null, ...prose(note)))), ...card.cures.map((cure) => entry(say("help"), help({ ...cure, summary: cure.text, confidence: say("choice") })))];
  return h(
    "article",
    { class: "dw-finding dw-error dw-failure", "data-kind": card.kind, "data-severity": "error" },
    h(
      "header",
      null,
      h("span", { class: "dw-badge dw-error" }, h("span", { "aria-hidden": "true" }, MARKS.error), ` ${card.kind}`),
      h("h4", null, ...prose(card.headline)),
      copyButton([`${card.headline}: ${card.message}`, ...card.frames, card.raw].join("\n"), say("Copy this exception"), say("copy")),
    ),
    h("pre", { class: "dw-message" }, card.message),
    h("dl", null, entries),
    card.frames.length ? folded : "",
  );
}

function findingCard(card, reveal, tryIt) {
  const where = h(
    "dd",
    null,
    moduleLink(card, reveal),
    card.class ? h("span", { class: "dw-soft" }, ` (${card.class})`) : "",
    " ",
    traceLink(card, reveal),
    card.fault && !card.fault.text ? h("span", { class: "dw-soft", title: card.fault.file }, `  ${card.fault.place}`) : "",
    operands(card.operands),
    source(card.fault, card.severity === "error" ? say("fails here") : say("happens here")),
    source(card.birth, say("placed here"), true),
  );
  const entries = [entry(say("where"), where)];
  if (card.why) entries.push(entry(say("why"), h("dd", null, ...prose(card.why))));
  for (const note of card.notes) entries.push(entry(say("note"), h("dd", null, ...prose(note))));
  card.fixes.forEach((fix, number) => entries.push(entry(say("help"), help(fix, tryIt && (() => tryIt(number))))));
  return h(
    "article",
    { class: `dw-finding dw-found dw-${card.severity}`, tabindex: "-1", "data-kind": card.kind, "data-severity": card.severity },
    h(
      "header",
      null,
      h("span", { class: `dw-badge dw-${card.severity}` }, h("span", { "aria-hidden": "true" }, MARKS[card.severity]), ` ${say(card.severity)}`),
      h("span", { class: "dw-kind" }, card.kind),
      h("h4", null, ...prose(card.headline)),
      copyButton(card.text, say("Copy this finding"), say("copy")),
    ),
    h("dl", null, entries),
  );
}

const entry = (name, dd) => [h("dt", null, name), dd];

// The tensors that met: the one in the wrong place bold and in its device's colour, the others quiet.
function operands(cards) {
  const item = ({ text, device, culprit }) => h("li", { class: `dw-mono${culprit ? " dw-culprit" : ""}`, style: `--dw-hue:${hueOf(device)}`, title: culprit && say("in the wrong place") }, text);
  return cards.length ? h("ul", { class: "dw-operands" }, cards.map(item)) : "";
}

function source(site, label, born = false) {
  if (!site || !site.text) return site && born ? h("p", { class: "dw-soft", title: site.file }, say("placed at {place}", { place: site.place })) : "";
  const facts = { what: label, ...site };
  const caption = site.function && site.function !== "<module>" ? say("{what}: {place} in {function}", facts) : say("{what}: {place}", facts);
  return h(
    "figure",
    { class: "dw-source" },
    h("figcaption", { title: site.file }, caption),
    h("pre", null, h("span", { class: "dw-line", "aria-hidden": "true" }, site.line), h("code", null, site.text)),
  );
}

function help(fix, tryIt) {
  return h(
    "dd",
    null,
    h("span", { class: "dw-tag" }, ...prose(fix.confidence)),
    " ",
    ...prose(fix.summary),
    fix.offered && tryIt ? tryButton(fix, tryIt) : "",
    fix.code && !fix.edits?.length ? h("div", { class: "dw-fix" }, h("pre", null, h("code", null, fix.code)), copyButton(fix.code, say("Copy the fix"), say("copy"))) : "",
    ...(fix.edits ?? []).map(edited),
  );
}

function tryButton(fix, tryIt) {
  const title = say("run the step twice, once with this edit, and put all of it back; what it writes or sends is written or sent again");
  return h("button", { class: "dw-plain dw-try", type: "button", title, "aria-label": say("Try it: {fix}", { fix: fix.summary }), onclick: tryIt }, say("Try it"));
}

function edited(edit) {
  const line = (text) => h("span", { class: text.startsWith("+") ? "dw-added" : "dw-removed" }, `${text}\n`);
  return h(
    "figure",
    { class: "dw-source" },
    h("figcaption", { title: edit.file }, edit.place),
    h("div", { class: "dw-fix" }, h("pre", { class: "dw-diff" }, h("code", null, edit.lines.map(line))), copyButton(edit.text, say("Copy the new lines"), say("copy"))),
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
    lost.length ? h("div", null, say("could not put back:"), h("ul", null, lost)) : "",
    ...(traced.trials ?? []).map((words) => h("p", null, ...prose(words))),
  );
}
