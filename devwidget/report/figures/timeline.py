"""A trace on lanes as columns of numbers, which the page draws: it has room for thousands of boxes, and zooms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.device import DeviceId
from devwidget.report.style.units import count_words, format_bytes, some_seconds
from devwidget.report.style.words import code_word, row_words
from devwidget.report.text.memory_words import refusal_words
from devwidget.views.clock import Clock
from devwidget.views.sums import total, values_once
from devwidget.views.timeline import Arrow, Band, Box, Timeline

Columns = dict[str, Any]
_MOST_ARROWS = 20_000


def timeline_columns(lanes: Timeline, clock: Clock | None = None) -> Columns:
    """Boxes, arrows, crosses and bands, their facts in columns; modules and lanes are named by their numbers, -1 for none.

    Args:
        clock: where things are by time is under `time`.
    """
    classes = _find_modules(lanes)
    lane: dict[DeviceId | None, int] = {None: -1} | _number_items(lanes.lanes)
    number: dict[str | None, int] = {None: -1} | _number_items(classes)
    arrows = sorted(lanes.arrows, key=lambda arrow: -arrow.bytes)[:_MOST_ARROWS]
    columns: Columns = {
        "words": _count_words(lanes),
        "lanes": list(map(str, lanes.lanes)),
        "modules": list(map(list, classes.items())),
        "lane": [],
        "level": [],
        "module": [],
        "gradients": [],
        "failed": [],
        "facts": {},
        "arrows": [],
        "crosses": [],
        "refusals": [],
        "bands": [[band.phase, _empty_words(band)] for band in lanes.bands],
        "left_out": lanes.left_out,
        "time": _places(lanes, arrows, clock.at) if clock else None,
    }
    _add_boxes(columns, lanes.boxes, lane, number)
    largest = max(map(attrgetter("bytes"), arrows), default=0)
    for arrow in arrows:
        facts = _arrow_facts(arrow, largest)
        columns["arrows"].append([lane[arrow.source], lane[arrow.target], number[arrow.module], *facts])
    healed = values_once(arrows, "cross")
    for at, cross in enumerate(lanes.crosses):
        row = [lane[cross.lane], number[cross.module], said(cross.headline), cross.finding, at in healed]
        columns["crosses"].append(row)
    for mark in lanes.refusals:
        words = refusal_words(mark.curve, mark.refusal)
        columns["refusals"].append([lane[mark.curve.device], number[mark.refusal.module], words])
    return columns | _places(lanes, arrows, float)


def _number_items(items: Iterable[Any]) -> dict[Any, int]:
    return {item: at for at, item in enumerate(items)}


def _add_boxes(columns: Columns, boxes: Iterable[Box], lane: dict[DeviceId | None, int], number: dict[str | None, int]) -> None:
    for at, box in enumerate(boxes):
        columns["lane"].append(lane[box.lane])
        columns["level"].append(box.level)
        columns["module"].append(number[box.path])
        if box.is_gradient:
            columns["gradients"].append(at)
        if box.failed:
            columns["failed"].append(at)
        if words := _box_words(box):
            columns["facts"][str(at)] = words


def _places(lanes: Timeline, arrows: Iterable[Arrow], at: Callable[[float], float]) -> Columns:
    """Where everything is, on one axis."""

    def places_of(records: Iterable[Any], name: str = "at") -> list[float]:
        return list(map(at, map(attrgetter(name), records)))

    return {
        "start": [round(place, 7) for place in places_of(lanes.boxes, "start")],
        "stop": [round(place, 7) for place in places_of(lanes.boxes, "stop")],
        "arrowsAt": places_of(arrows),
        "crossesAt": places_of(lanes.crosses),
        "refusalsAt": places_of(lanes.refusals),
        "spans": [[at(band.start), at(band.stop)] for band in lanes.bands],
    }


def _find_modules(lanes: Timeline) -> dict[str, str]:
    """Path -> class of all modules that something is drawn for, "" where no box tells it."""
    named = {box.path: box.class_name for box in lanes.boxes}
    others = (*values_once(lanes.arrows, "module"), *values_once(lanes.crosses, "module"))
    for path in (*others, *values_once(lanes.refusals, "refusal.module")):
        if path is not None:
            named.setdefault(path, "")
    return named


def _count_words(lanes: Timeline) -> str:
    calls = sum(not box.is_gradient for box in lanes.boxes)
    hops = count_words(total(lanes.arrows, "count"), "hop")
    return row_words((count_words(calls, "module call"), hops, count_words(len(lanes.lanes), "device")))


def _box_words(box: Box) -> str:
    """What its lane and its name do not say; "" for nothing."""
    words = [some_seconds(box.seconds)]
    if box.lane is None:
        words.insert(0, say("on several devices"))
    if box.calls > 1:
        words.append(count_words(box.calls, "call"))
    if box.replica >= 0:
        words.append(say("replica {number}", number=box.replica))
    if box.failed:
        words.append(say("one call failed"))
    if box.is_gradient:
        words.append(say("gradients on {device}", device=box.lane))
    return row_words(words)


def _arrow_facts(arrow: Arrow, largest: int) -> tuple[Any, ...]:
    """Its line, how often, bytes, how wide from 0 to 1 on a scale of square roots, its fault, and whether the trace made it."""
    weight = round(math.sqrt(arrow.bytes / max(largest, 1)), 3)
    return arrow.hop, arrow.count, format_bytes(arrow.bytes), weight, arrow.cross, arrow.cause == "healed"


def _empty_words(band: Band) -> list[str] | None:
    """What is in a phase in which nothing is drawn."""
    if band.is_empty:
        return [code_word(band.phase), count_words(band.operators, "operator"), say("no hop")]
    return None
