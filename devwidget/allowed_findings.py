"""The findings that `check` and the pytest plugin fail on, and those they allow."""

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
    """Raise if a trace has findings that fail.

    Args:
        found: The trace.
        fail_on: Severities that fail.
        kinds: Kinds of findings to ignore.
        baseline: As for `check`.

    Raises:
        PlacementError: With the report.
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
    """Return a trace, or load it from its file.

    Raises:
        DevwidgetError: If it is not a trace.
    """
    from devwidget.records.loading import json_io  # the typed reader is built when a file is opened

    example = 'devwidget.compare("before.json", after)'
    record: Any = given
    if isinstance(given, str | pathlib.Path):
        record = json_io.load(file_to_read(given, example))
    if not isinstance(record, Trace):
        raise DevwidgetError(
            Message("expected a trace, got a {kind}", kind=class_name(type(record))), instead="devwidget.compare(before, after)"
        )
    return record


def parse_allowed(allow: str | Iterable[str]) -> tuple[list[str], set[str]]:
    """Split `allow` into transfers and kinds of findings."""
    words = list(words_of(allow, "allow", _ALLOW_EXAMPLE))
    known = [rule.kind for rule in rules.all_rules()]
    hops = [word for word in words if "->" in word]
    for word in words:
        if word not in hops and word not in known:
            facts = {"word": repr(word), "hint": nearest(word, known)}
            problem = Message("{word} is neither a kind of finding nor a transfer{hint}", **facts)
            raise DevwidgetError(problem, instead=_ALLOW_EXAMPLE)
    return hops, set(words) - set(hops)


def parse_severities(fail_on: Iterable[Severity]) -> set[Severity]:
    """Parse the names of severities.

    Raises:
        DevwidgetError: If a name is not a severity.
    """
    known: tuple[Severity, ...] = get_args(Severity)
    chosen = set(words_of(fail_on, "fail_on", 'fail_on=("error", "warning")'))
    for word in sorted(chosen.difference(known)):
        raise DevwidgetError(
            Message("{word} is not a severity{hint}", word=repr(word), hint=nearest(word, known)),
            instead=Message("one of {known}", known=", ".join(known)),
        )
    return {word for word in known if word in chosen}
