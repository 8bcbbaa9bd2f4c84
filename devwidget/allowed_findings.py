"""What `check` and the plugin for pytest refuse of a trace, and what they allow."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any, get_args

from devwidget.capture.object_fields import class_name
from devwidget.capture.validation import words_of
from devwidget.records.comparison import Comparison
from devwidget.records.errors import DevwidgetError, PlacementError, nearest
from devwidget.records.finding import Severity
from devwidget.records.schema.message import Message
from devwidget.records.schema.paths import file_to_read
from devwidget.records.trace import Trace
from devwidget.rules import registry as rules
from devwidget.views.compare import compare_traces

_ALLOW_EXAMPLE = 'allow=("host-sync", "cuda:0 -> cpu")'


def refuse_findings(
    found: Trace, *, fail_on: Iterable[Severity], kinds: set[str], baseline: str | pathlib.Path | Trace | None = None
) -> None:
    """What `check` does with a trace.

    Args:
        found: the trace.
        fail_on: severities that fail.
        kinds: kinds of findings that are meant.
        baseline: as for `check`.

    Raises:
        PlacementError: with the report.
    """
    __tracebackhide__ = True
    severities = parse_severities(fail_on)
    if baseline is not None:
        known = compare_traces(trace_of(baseline), found)
    else:
        known = Comparison(new=found.findings)
    texts = []
    for finding in known.new:
        if finding.severity in severities and finding.kind not in kinds:
            texts.append(str(finding))
    if found.error and not known.error_before:
        texts.append(found.error)
    if texts:
        failed = PlacementError("\n\n".join(texts))
        failed.trace = found
        raise failed


def trace_of(given: str | pathlib.Path | Trace) -> Trace:
    """The trace that was given, or saved in that file.

    Raises:
        DevwidgetError: if it is no trace.
    """
    from devwidget.records.loading import json_io  # the typed reader is built when a file is opened

    example = 'devwidget.compare("before.json", after)'
    record: Any = given
    if isinstance(given, str | pathlib.Path):
        record = json_io.load(file_to_read(given, example))
    if not isinstance(record, Trace):
        raise DevwidgetError(
            Message("a {kind} is no trace", kind=class_name(type(record))), instead="devwidget.compare(before, after)"
        )
    return record


def parse_allowed(allow: str | Iterable[str]) -> tuple[list[str], set[str]]:
    """Hops, and kinds of findings."""
    words = list(words_of(allow, "allow", _ALLOW_EXAMPLE))
    known = [rule.kind for rule in rules.all_rules()]
    hops = [word for word in words if "->" in word]
    for word in words:
        if word not in hops and word not in known:
            facts = {"word": repr(word), "hint": nearest(word, known)}
            problem = Message("{word} is neither a kind of finding nor a hop{hint}", **facts)
            raise DevwidgetError(problem, instead=_ALLOW_EXAMPLE)
    return hops, set(words) - set(hops)


def parse_severities(fail_on: Iterable[Severity]) -> set[Severity]:
    """The severities that were named.

    Raises:
        DevwidgetError: if one of them is none.
    """
    known: tuple[Severity, ...] = get_args(Severity)
    chosen = set(words_of(fail_on, "fail_on", 'fail_on=("error", "warning")'))
    for word in sorted(chosen.difference(known)):
        raise DevwidgetError(
            Message("{word} is no severity{hint}", word=repr(word), hint=nearest(word, known)),
            instead=Message("one of {known}", known=", ".join(known)),
        )
    return {word for word in known if word in chosen}
