"""How a recording ended, if an exception ended it: the line, what is known of the cause, and the traceback, folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from devwidget.records.failure import Failure
from devwidget.records.trace import Trace
from devwidget.report.style.words import module_words, site_words
from devwidget.report.text.memory_words import memory_cards
from devwidget.report.text.parallel_advice import advice
from devwidget.views.parallel import parallel_calls

Card = dict[str, Any]


def failure_card(trace: Trace) -> Card | None:
    """The card that stands before all findings; None for a step that ran to its end."""
    if not trace.error:
        return None
    failure = trace.failure or Failure(*_parted(trace.error))
    cures, refused = list(_cures(trace, failure)), _refused(trace, failure)
    return {
        "kind": "out of memory" if failure.out_of_memory else "exception",
        "headline": f"the step ended by {failure.kind}" + (f" in `{failure.module}`" if failure.module else ""),
        "message": "\n".join(refused) or failure.message,
        "raw": f"{failure.kind}: {failure.message}",
        "module": module_words(failure.module),
        "path": failure.module,
        "place": site_words(failure.site),
        "line": failure.site.line if failure.site else 0,
        "source": failure.site.text if failure.site else "",
        "notes": list(_notes(trace, failure)),
        "cures": [{"text": each.text, "code": each.code} for each in cures],
        "frames": list(failure.frames),
    }


def failure_lines(trace: Trace) -> Iterator[str]:
    """The same as text."""
    card = failure_card(trace)
    if card is None:
        return
    first, *more = trace.error.splitlines() or [trace.error]
    yield f"  ended by {first}"
    yield from (f"    {line}" for line in more)
    if card["place"]:
        yield f"  where: {card['module']}, {card['place']}: {' '.join(card['source'].split())}"
    yield from (f"  note:  {note}" for note in (*_refused(trace, trace.failure), *card["notes"]))


def _parted(error: str) -> tuple[str, str]:
    kind, _, message = error.partition(": ")
    return kind, message


def _refused(trace: Trace, failure: Failure | None) -> list[str]:
    """What did not fit, where, and how much was missing: plainer than the allocator's own text."""
    return list(memory_cards(trace)["refused"]) if failure is not None and failure.out_of_memory else []


def _notes(trace: Trace, failure: Failure) -> Iterator[str]:
    """What the recording knows of it."""
    if failure.out_of_memory:
        for each in memory_cards(trace)["holdings"][:3]:
            code = f"  `{each['code']}`" if each["code"] else ""
            yield f"live then on {each['device']}: {each['bytes']} {each['role']}, {each['place']}{code}"
    errors = [finding for finding in trace.findings if finding.severity == "error"]
    if errors:
        yield f"found on the way: {errors[0].headline}"
    yield "what comes after this line was not run, and so not checked"


def _cures(trace: Trace, failure: Failure) -> Iterator[Any]:
    """Advice of the DataParallel call whose gather point was full; a fault's own cure is on its finding."""
    if failure.out_of_memory:
        for call in parallel_calls(trace):
            yield from advice(call)
