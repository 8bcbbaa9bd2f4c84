"""A finding in the form of a good compiler's message: what, where, why, notes, help; and an explanation, which leads to one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from devwidget.language.speaking import said, say
from devwidget.records.errors import of_worker
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Edit, Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.words import (
    align_columns,
    code_word,
    first_line,
    label_line,
    mentions_place,
    module_words,
    row_words,
    site_words,
    tensor_words,
    translate_finding,
)

_MOST_PATHS = 3
_CONFIDENCE = {"sure": Message("sure"), "likely": Message("likely"), "choice": Message("choice")}


@presents("text", Finding)
def finding_text(finding: Finding, class_name: str = "") -> str:
    """The message, without a line break at its end; `class_name` is the class of its module, where known."""
    return text_of(finding_lines(finding, class_name))


def where_words(finding: Finding, class_name: str = "") -> str:
    """Module and line, then the tensors that met, or the source where no tensors did; "" where nobody knows."""
    if finding.module is None and finding.fault is None and not finding.operands:
        return ""
    known = f" ({class_name})" if class_name and finding.module is not None else ""
    place = row_words((module_words(finding.module) + known, site_words(finding.fault)))
    detail = "  |  ".join(finding.operands) or first_line(finding.fault)
    if detail:
        return f"{place}      {detail}"
    return place


def extra_notes(finding: Finding) -> tuple[str, ...]:
    """What the record knows beyond the notes that its rule wrote: the birth and further places."""
    birth = site_words(finding.birth)
    if not finding.birth or finding.birth == finding.fault or mentions_place(finding, birth):
        return further_places(finding)
    source = first_line(finding.birth)
    if source:
        placed = say("placed at {place}: {source}", place=birth, source=source)
    else:
        placed = say("placed at {place}", place=birth)
    return (placed, *further_places(finding))


def further_places(finding: Finding) -> tuple[str, ...]:
    """Where else the same cause strikes; () for a cause that strikes once."""
    if not finding.also:
        return ()
    more = len(finding.also) - _MOST_PATHS
    paths = row_words(f"`{module_words(path)}`" for path in finding.also[:_MOST_PATHS])
    if more > 0:
        return (say("the same in {paths} and {count} more", paths=paths, count=more),)
    return (say("the same in {paths}", paths=paths),)


def finding_lines(finding: Finding, class_name: str = "") -> Iterator[str]:
    """The lines of the message."""
    finding = translate_finding(finding)
    yield f"{code_word(finding.severity)}[{finding.kind}] {finding.headline}"
    if where := where_words(finding, class_name):
        yield label_line(say("where"), where)
    if finding.why:
        yield label_line(say("why"), finding.why)
    for note in (*finding.notes, *extra_notes(finding)):
        yield label_line(say("note"), note)
    for fix in finding.fixes:
        yield from _help_lines(fix)


def confidence_words(fix: Fix) -> str:
    """`sure, verified`; an edit that nobody has run says so, and why."""
    confidence = said(_CONFIDENCE[fix.confidence])
    if fix.verified and fix.not_compared:
        return say(
            "{confidence}, verified; its result was not checked: {reason}", confidence=confidence, reason=said(fix.not_compared)
        )
    if fix.verified:
        return say("{confidence}, verified", confidence=confidence)
    if fix.fails:
        return say("{confidence}, tried: the step fails, or gives another result", confidence=confidence)
    if fix.not_tried:
        return say("{confidence}, not tried: {reason}", confidence=confidence, reason=said(fix.not_tried))
    if fix.warns:
        return say("{confidence}, tried: the step runs, with {warning}", confidence=confidence, warning=fix.warns)
    if fix.edits:
        return say("{confidence}, not tried", confidence=confidence)
    return confidence


def changed_lines(edit: Edit) -> list[str]:
    """The lines of an edit that differ, `-` before the old and `+` before the new, with their common indent taken off."""
    rows = [row for row in difflib.ndiff(edit.old_lines, edit.new_lines) if row[:1] in "+-"]
    shift = min((len(row) - 2 - len(row[2:].lstrip()) for row in rows if row[2:].strip()), default=0)
    return [(row[:2] + row[2 + shift :]).rstrip() for row in rows]


def _help_lines(fix: Fix) -> Iterator[str]:
    words = say("({confidence}) {summary}", confidence=confidence_words(fix), summary=fix.summary)
    if fix.edits:
        yield label_line(say("help"), words)
        for edit in fix.edits:
            yield f"         {site_words(edit.site)}"
            yield from (f"           {line}" for line in changed_lines(edit))
        return
    if "\n" not in fix.code:
        yield label_line(say("help"), say("{label}:", label=words) + f"  {fix.code}" if fix.code else words)
        return
    yield label_line(say("help"), say("{label}:", label=words))
    yield from (f"           {line}".rstrip() for line in fix.code.splitlines())


@presents("text", Explanation)
def explanation_text(explanation: Explanation) -> str:
    """The answer to `why did it fail?`."""
    return text_of(_explanation_lines(explanation))


def _explanation_lines(explanation: Explanation) -> Iterator[str]:
    error, place = of_worker(explanation.error)
    first = next(iter(error.strip().splitlines()), "")
    yield f"{first} ({place})" if place else first
    yield said(explanation.verdict)
    for finding in explanation.findings:
        yield ""
        yield from finding_lines(finding)
    if explanation.site is not None:
        yield ""
        yield f"{site_words(explanation.site)}  {first_line(explanation.site)}"
        rows = [(v.name, tensor_words(v.dtype, v.shape), str(v.device)) for v in explanation.values]
        yield from align_columns(rows, indent="  ") if rows else ()
    if explanation.notes:
        yield ""
        yield from (say("note: {note}", note=said(note)) for note in explanation.notes)
