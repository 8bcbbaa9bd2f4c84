"""How a recording ended, if an exception ended it: the line, what is known of the cause, and the traceback, folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.explanation import Failure
from devwidget.records.memory import Refusal
from devwidget.records.trace import Trace
from devwidget.report.report_parts import Part, Sentence
from devwidget.report.style.words import module_words, row_words, site_words
from devwidget.report.text.advice import NAMES, Advice, StepNames, memory_advice
from devwidget.report.text.finding_text import help_parts
from devwidget.report.text.memory_words import holding_card, memory_cards

Card = dict[str, Any]
_MOST_HOLDERS = 3


def failure_card(trace: Trace, names: StepNames = NAMES) -> Card | None:
    """The card above all findings; None for a step that ran to its end. Code to write has the names of your step."""
    if not trace.error:
        return None
    kind, _, message = trace.error.partition(": ")
    failure = trace.failure or Failure(kind, message)
    card = {
        "kind": say("exception"),
        "headline": _end_words(trace, failure),
        "message": "\n".join(_refusal_lines(trace, failure)) or failure.message,
        "raw": f"{failure.kind}: {failure.message}",
        "module": module_words(failure.module),
        "path": failure.module,
        "place": site_words(failure.site),
        "line": 0,
        "source": "",
        "notes": list(_failure_notes(trace, failure)),
        "cures": list(map(asdict, _find_fixes(trace, failure, names))),
        "frames": list(failure.frames),
    }
    if failure.out_of_memory:
        card["kind"] = say("out of memory")
    if failure.site:
        card |= {"line": failure.site.line, "source": failure.site.text}
    return card


def _end_words(trace: Trace, failure: Failure) -> str:
    full = [str(curve.device) for curve in trace.memory if curve.refused]
    if failure.out_of_memory and full:
        where = {"devices": row_words(full), "module": module_words(failure.module)}
        if failure.module is None:
            return say("{devices} ran out of memory {module}", **where)
        return say("{devices} ran out of memory in {module}", **where)
    if failure.module:
        return say("the step ended with {error} in `{module}`", error=failure.kind, module=failure.module)
    return say("the step ended with {error}", error=failure.kind)


def failure_parts(trace: Trace) -> Iterator[Part]:
    """The card of a failure as parts of a report."""
    card = failure_card(trace)
    if card is None:
        return
    first, *more = trace.error.splitlines() or [trace.error]
    yield Sentence("  " + say("ended with {error}", error=first))
    for line in more:
        yield Sentence(f"    {line}")
    if card["place"]:
        source = " ".join(card["source"].split())
        yield Sentence(f"{card['module']}, {card['place']}: {source}", label=say("where"))
    for note in (*_refusal_lines(trace, trace.failure), *card["notes"]):
        yield Sentence(note, label=say("note"))
    for cure in card["cures"]:
        yield from help_parts(cure["text"], cure["code"])


def _refusal_lines(trace: Trace, failure: Failure | None) -> list[str]:
    """What did not fit, where, and how much was missing: plainer than the allocator's own text."""
    if failure is not None and failure.out_of_memory:
        return list(memory_cards(trace)["refused"])
    return []


def _failure_notes(trace: Trace, failure: Failure) -> Iterator[str]:
    """What the recording knows of it."""
    live = []
    if failure.out_of_memory:
        live = _live_then(trace)
    for each in live:
        role, place = each["role"], each["place"]
        if each["path"]:
            role = say("{role} of `{module}`", role=role, module=each["path"])
        if each["code"]:
            place += f"  `{each['code']}`"
        what = row_words((f"{each['bytes']} {role}", place))
        yield say("live on {device} at that time: {what}", device=each["device"], what=what)
    for finding in trace.findings:
        if finding.severity == "error":
            yield say("found earlier: {headline}", headline=said(finding.headline))
            break
    yield say("the code after this line did not run and was not checked")


def _live_then(trace: Trace) -> list[Card]:
    """The lines that held most on the device that was full, when it was."""
    last: Refusal | None = None
    cards: list[Card] = []
    for curve in trace.memory:
        for refused in curve.refused:
            if last is None or refused.number > last.number:
                last = refused
                cards = [holding_card(curve, holding) for holding in refused.holdings[:_MOST_HOLDERS]]
    return cards


def _find_fixes(trace: Trace, failure: Failure, names: StepNames) -> Iterator[Advice]:
    """What to do: the fix of the finding on whose line the step ended; without room, advice on memory."""
    for finding in trace.findings:
        if finding.fixes and failure.site is not None and finding.fault == failure.site:
            yield Advice(finding.fixes[0].summary, finding.fixes[0].code)
    if failure.out_of_memory:
        yield from memory_advice(trace, names)
