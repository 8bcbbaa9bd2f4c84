"""A finding in the form of a good compiler's message: what, where, why, notes, help; and an explanation, which leads to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from devwidget.language.speaking import said, say
from devwidget.records.errors import of_worker
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Edit, Finding, Fix
from devwidget.report.page.draw_page import writes
from devwidget.report.page.edit_rows import edit_rows
from devwidget.report.report_parts import GAP, Code, Fold, Heading, Part, Sentence, Table
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.words import (
    and_more,
    code_word,
    first_line,
    mentions_place,
    module_words,
    row_words,
    shorten_text,
    site_words,
    tensor_words,
    translate_finding,
)
from devwidget.report.text.draw_text import draw_lines
from devwidget.report.text.memory_text import list_holders

_MOST_PATHS = 3
_MOST_OPERANDS = 6
_MOST_LETTERS = 120
"""Of an operand and its shape, or of a statement, on one line."""


def finding_text(finding: Finding, class_name: str = "") -> str:
    """The message, without a line break at its end; `class_name` is the class of its module, where known."""
    return text_of(draw_lines(finding_parts(finding, class_name)))


def where_words(finding: Finding, class_name: str = "") -> str:
    """Return module and line, then the tensors of the call, or the source if there are none; "" if unknown."""
    if finding.module is None and finding.fault is None and not finding.operands:
        return ""
    known = f" ({class_name})" if class_name and finding.module is not None else ""
    place = row_words((module_words(finding.module) + known, site_words(finding.fault)))
    operands = [shorten_text(each, _MOST_LETTERS) for each in finding.operands[:_MOST_OPERANDS]]
    if len(finding.operands) > _MOST_OPERANDS:
        operands.append(say("and {count} more", count=len(finding.operands) - _MOST_OPERANDS))
    detail = "  |  ".join(operands) or shorten_text(first_line(finding.fault), _MOST_LETTERS)
    if detail:
        return f"{place}      {detail}"
    return place


def extra_notes(finding: Finding) -> tuple[str, ...]:
    """Where the tensor was created or moved, unless the rule's own notes say it, and further places of the same cause."""
    birth = site_words(finding.birth)
    if not finding.birth or finding.birth == finding.fault or mentions_place(finding, birth):
        return further_places(finding)
    if finding.birth_moves:
        decided = say("moved at {place}", place=birth)
    else:
        decided = say("created at {place}", place=birth)
    source = first_line(finding.birth)
    if source:
        decided = say("{first}: {second}", first=decided, second=source)
    return (decided, *further_places(finding))


def birth_words(finding: Finding) -> str:
    """Label of the line that created or moved the tensor."""
    if finding.birth_moves:
        return say("moved here")
    return say("created here")


def further_places(finding: Finding) -> tuple[str, ...]:
    """Where else the same cause strikes; () for a cause that strikes once."""
    if not finding.also:
        return ()
    paths = row_words(f"`{module_words(path)}`" for path in finding.also[:_MOST_PATHS])
    return (say("also at {paths}", paths=and_more(paths, len(finding.also[_MOST_PATHS:]))),)


@writes(Finding)
def finding_parts(finding: Finding, class_name: str = "") -> Iterator[Part]:
    """What, where, why, what else is known, and each way to change it."""
    finding = translate_finding(finding)
    yield Heading(f"{code_word(finding.severity)}[{finding.kind}] {finding.headline}")
    if where := where_words(finding, class_name):
        yield Sentence(where, label=say("where"))
    if finding.why:
        yield Sentence(finding.why, label=say("why"))
    for note in (*finding.notes, *extra_notes(finding)):
        yield Sentence(note, label=say("note"))
    for fix in finding.fixes:
        yield from _fix_parts(fix)


def confidence_words(fix: Fix) -> str:
    """Return `verified` for a fix that a run has confirmed; else how likely it works, and why it was not run, if known."""
    if fix.confidence == "sure":
        return say("verified")
    confidence = code_word(fix.confidence)
    facts = {"confidence": confidence, "reason": said(fix.not_compared or fix.not_tried), "warning": fix.warns}
    if fix.verified and fix.not_compared:
        return say("{confidence}; the step runs with it, but its result was not compared: {reason}", **facts)
    if fix.verified:
        return say("{confidence}, verified", **facts)
    if fix.fails:
        return say("{confidence}; with it the step fails or gives a different result", **facts)
    if fix.not_tried:
        return say("{confidence}, not run: {reason}", **facts)
    if fix.warns:
        return say("{confidence}; with it the step runs, with {warning}", **facts)
    return confidence


def changed_lines(edit: Edit) -> list[str]:
    """The lines of an edit that differ, `-` before the old ones and `+` before the new."""
    lines = []
    for sign, _, parts in edit_rows(edit):
        text = "".join(text for text, _ in parts)
        lines.append(f"{sign} {text}".rstrip())
    return lines


def _fix_parts(fix: Fix) -> Iterator[Part]:
    words = say("({confidence}) {summary}", confidence=confidence_words(fix), summary=fix.summary)
    if fix.edits:
        yield Sentence(words, label=say("help"))
        for edit in fix.edits:
            yield Code(changed_lines(edit), site_words(edit.site))
    else:
        yield from help_parts(say("{label}:", label=words) if fix.code else words, fix.code)


def help_parts(words: str, code: str) -> Iterator[Part]:
    """What to do, and code to write: on the same line, if it is one."""
    lines = code.splitlines()
    if len(lines) == 1:
        words = f"{words}  {code}"
    yield Sentence(words, label=say("help"))
    if len(lines) > 1:
        yield Code(lines)


@writes(Explanation)
def explanation_parts(explanation: Explanation) -> Iterator[Part]:
    """The answer to `why did it fail?`."""
    error, place = of_worker(explanation.error)
    first = next(iter(error.strip().splitlines()), "")
    yield Sentence(f"{first} ({place})" if place else first)
    if explanation.verdict:
        yield Sentence(said(explanation.verdict), "verdict")
    for finding in explanation.findings:
        yield from finding_parts(finding)
    if explanation.memory is not None:
        yield from list_holders(explanation.memory, is_failed=True)
    if explanation.site is not None:
        yield Heading(f"{site_words(explanation.site)}  {first_line(explanation.site)}")
        rows = [(value.name, tensor_words(value.dtype, value.shape), str(value.device)) for value in explanation.values]
        if rows:
            yield Table(rows, has_heading=False)
    if explanation.notes:
        yield GAP
    for note in explanation.notes:
        yield Sentence(say("note: {note}", note=said(note)))


def card_parts(explanation: Explanation) -> Iterator[Part]:
    """The answer in short, below the exception: the first finding with its first fix. A page folds the rest."""
    for finding in explanation.findings[:1]:  # with one, the page folds the traceback that has the error
        yield Sentence(next(iter(explanation.error.splitlines()), ""), on="page")
        yield from finding_parts(dataclasses.replace(finding, fixes=finding.fixes[:1]))
    if not explanation.findings:
        yield Sentence(said(explanation.verdict), "verdict")
    yield Fold(say("the whole answer"), [*explanation_parts(explanation)], on="page")
    yield Sentence(say("`%devwidget why` shows the whole answer"), on="text")
