"""Records -> what a page needs to draw a panel, live or exported; `@displayed` makes every word of it safe to show."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from devwidget.language.speaking import say
from devwidget.records.finding import Fix
from devwidget.records.memory import DeviceMemory
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.figures.devices import WIDTHS, draw_devices
from devwidget.report.figures.memory import memory_figure, memory_steps_figure
from devwidget.report.figures.timeline import timeline_figure
from devwidget.report.page.cards import (
    crossing_cards,
    finding_card,
    finding_place,
    fix_card,
    header_card,
    hop_cards,
    meter_cards,
    row_detail,
)
from devwidget.report.page.parallel_cards import parallel_card, spread_cards
from devwidget.report.page.tree_columns import mark_columns, tree_table
from devwidget.report.style.safe_text import displays_safely
from devwidget.report.text.advice import NAMES, StepNames
from devwidget.report.text.comparison import hop_rows, measure_rows, verdict_words
from devwidget.report.text.failure_card import failure_card
from devwidget.report.text.memory_words import memory_cards
from devwidget.report.text.trace_text import (
    not_checked_words,
    summary_words,
    trial_words,
    wait_cards,
    wait_words,
)
from devwidget.views.clock import Clock, with_real_times
from devwidget.views.compare import compare_traces
from devwidget.views.devices import Picture, make_picture
from devwidget.views.memory import memory_bars, memory_series
from devwidget.views.overlay import Overlay
from devwidget.views.parallel import parallel_calls
from devwidget.views.placement import PlacementTable
from devwidget.views.sums import values_once
from devwidget.views.timeline import make_timeline

MOST_EAGER = 1500
"""Tensors up to which all details travel with the table; beyond, each is asked for when a row is opened."""

Content = dict[str, Any]

detail_content = displays_safely(row_detail)
"""What opens below a row."""
marks_content = displays_safely(mark_columns)
"""What a trace adds to the tree."""


@displays_safely
def head_content(snapshot: Snapshot, table: PlacementTable) -> Content:
    """The header, and what spreads the model."""
    return header_card(snapshot, table) | {"virtual": snapshot.virtual_gpus, "spread": spread_cards(snapshot)}


def tree_content(snapshot: Snapshot, table: PlacementTable, *, most: int = MOST_EAGER) -> Content:
    """The module tree, with the details of all rows for a model of ordinary size."""
    return displays_safely(tree_table)(table) | {"details": _eager_details(snapshot, table, most)}


def _eager_details(snapshot: Snapshot, table: PlacementTable, most: int) -> Content:
    if sum(len(module.tensors) for module in snapshot.modules) > most or len(table) > most:
        return {}
    return {str(row): detail_content(snapshot, table, row) for row in range(len(table))}


@displays_safely
def memory_content(
    memory: Iterable[DeviceMemory], trace: Trace | None, *, before: Iterable[DeviceMemory] | None = None
) -> Content:
    """Bars of the accelerators, and of all devices with the cpu, if it is asked for; `before` as for `memory_bars`."""
    memory = tuple(memory)
    gpus, everything = (memory_bars(memory, trace, with_cpu=cpu, before=before) for cpu in (False, True))
    return {
        "gpus": memory_figure(gpus) if gpus else None,
        "all": memory_figure(everything) if len(everything) > len(gpus) else None,
        "meters": meter_cards(gpus),
        "no_gpu": not any(each.device.is_accelerator for each in memory),
    }


@displays_safely
def traced_content(trace: Trace | None, table: PlacementTable, marks: Overlay, names: StepNames = NAMES) -> Content:
    """Everything that a trace adds to the panel; {} before the first one. Code to write has the names of your step."""
    if trace is None:
        return {}
    trace = with_real_times(trace)
    lanes, clock, series = make_timeline(trace), Clock(trace), memory_series(trace)
    failure, findings = _failure_in_its_finding(trace, names, _with_rows(trace, table, marks))
    timeline = memory = None
    if lanes.boxes and clock.runs:
        timeline = timeline_figure(lanes, clock)
    elif lanes.boxes:
        timeline = timeline_figure(lanes, None)
    if series:
        memory = memory_steps_figure(series)
    return {
        "summary": summary_words(trace, "hop"),
        "failure": failure,
        "findings": findings,
        "checked": list(trace.checked),
        "not_checked": not_checked_words(trace),
        "skipped": len(trace.not_checked),
        "not_restored": list(trace.not_restored),
        "trials": [*wait_words(trace), *trial_words(trace)],
        "hops": hop_cards(trace),
        "waits": wait_cards(trace),
        "timeline": timeline,
        "parallel": list(map(parallel_card, parallel_calls(trace))),
        "memory": memory,
        "peaks": memory_cards(trace),
    }


def _failure_in_its_finding(trace: Trace, names: StepNames, cards: list[Content]) -> tuple[Content | None, list[Content]]:
    """How the step ended; in the card of the finding that explains it, if there is one, since one fault is one card."""
    failure = failure_card(trace, names)
    fatal = [fault for fault in trace.faults if not fault.healed]
    ended = {fault.number for fault in fatal if fault.error == trace.error}
    for card, finding in zip(cards, trace.findings, strict=True):
        if failure is not None and ended.intersection(finding.explains):
            card["raised"] = failure
            return None, cards
    return failure, cards


@displays_safely
def applied_content(fix: Fix) -> Content:
    """A fix that has been written into the source of the user."""
    return {"edits": fix_card(fix)["edits"]}


@displays_safely
def compared_content(kept: Trace | None, trace: Trace | None) -> Content:
    """What differs between a trace and the one that was kept; {} without two of them."""
    if kept is None or trace is None:
        return {}
    if kept is trace:
        kept_words = say("Baseline saved. The next trace will be compared with it.")
        return {"verdict": kept_words, "rows": [], "hops": [], "fixed": [], "new": []}
    compared = compare_traces(kept, trace)
    return {
        "verdict": verdict_words(compared),
        "rows": measure_rows(compared),
        "hops": hop_rows(compared),
        "fixed": list(values_once(compared.fixed, "headline")),
        "new": list(values_once(compared.new, "headline")),
        "sides": [_side_card(kept), _side_card(trace)],
        "change": [compared.hops_before, compared.hops_after],
    }


def _side_card(trace: Trace) -> Content:
    wrong = bool(trace.error) or "error" in values_once(trace.findings, "severity")
    return {"crossings": crossing_cards(trace), "wrong": wrong}


@displays_safely
def devices_content(
    snapshot: Snapshot, table: PlacementTable, trace: Trace | None, opened: Collection[str] = (), *, every: bool = False
) -> Content:
    """The model on its devices, drawn for pages of several widths; {} where nothing is."""
    return picture_content(make_picture(snapshot, table, trace, opened=opened, every=every))


def picture_content(picture: Picture) -> Content:
    """Draw a picture of devices for pages of several widths; {} for an empty one."""
    if not picture.columns:
        return {}
    return {"drawn": {str(width): draw_devices(picture, width) for width in WIDTHS}}


def _with_rows(trace: Trace, table: PlacementTable, marks: Overlay) -> list[Content]:
    """The findings, each with the row of the tree that it belongs to."""
    rows = marks.rows_of_findings or [-1] * len(trace.findings)
    clock, cards = Clock(trace), []
    for finding, row in zip(trace.findings, rows, strict=True):
        class_name = table.classes[row] if 0 <= row < len(table) else ""
        explained = [fault for fault in trace.faults if fault.number in finding.explains]
        cards.append(finding_card(finding, row, class_name, finding_place(finding, clock), explained))
    return cards
