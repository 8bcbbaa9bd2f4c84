"""A traced step -> what a page needs to draw it: lanes with boxes and phases, links between them, a table of collectives."""

from __future__ import annotations

from typing import Any

from devwidget.language.speaking import say
from devwidget.records.ranks.traced import TracedJob
from devwidget.report.style.code_words import code_word
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.style.words import first_line, module_words, ranks_words, site_words
from devwidget.report.text.step_text import (
    cause_words,
    difference_words,
    group_words,
    size_words,
    step_headline,
)
from devwidget.views.ranks.meetings import Meeting, meetings
from devwidget.views.ranks.placing import Band, Box
from devwidget.views.ranks.step_lanes import Lane, Link, StepLanes, step_lanes
from devwidget.views.ranks.step_rows import CollectiveRow, collective_rows, kind_of

MOST_LINKS = 1000
"""Collectives that are drawn; the table tells of all."""


def step_content(job: TracedJob) -> dict[str, Any]:
    """Places are thousandths of the width."""
    drawn = step_lanes(job)
    rows, row_of = collective_rows(link.meeting for link in drawn.links)
    scale = 1000 / max(drawn.width, 1)
    largest = max((link.meeting.call.bytes for link in drawn.links), default=0)
    links = zip(drawn.links[:MOST_LINKS], row_of, strict=False)
    return {
        "title": step_headline(job, meetings(job)),
        "units": round(drawn.width, 1),
        "lanes": [_lane(lane, scale) for lane in drawn.lanes],
        "links": [_link(link, row, scale, largest) for link, row in links],
        "rows": [_row(row) for row in rows],
        "left_out": _left_out(drawn),
    }


def _lane(lane: Lane, scale: float) -> dict[str, Any]:
    return {
        "name": ranks_words(lane.ranks),
        "ranks": lane.ranks,
        "boxes": [_box(box, scale) for box in lane.boxes],
        "bands": [_band(band, scale) for band in lane.bands],
    }


def _box(box: Box, scale: float) -> list[Any]:
    return [*_from_to(box.start, box.stop, scale), box.level, module_words(box.span.path), box.span.class_name]


def _band(band: Band, scale: float) -> list[Any]:
    return [band.phase, *_from_to(band.start, band.stop, scale), code_word(band.phase)]


def _from_to(start: float, stop: float, scale: float) -> tuple[float, float]:
    return round(start * scale, 1), round((stop - start) * scale, 1)


def _link(link: Link, row: int, scale: float, largest: int) -> list[Any]:
    """Its ends, its row, how thick it is from 0 to 1, what is said of it, and whether its ranks do not agree."""
    ends = [[lane, round(at * scale, 1)] for lane, at in link.ends]
    share = round((link.meeting.call.bytes / largest) ** 0.5, 2) if largest else 0
    return [ends, row, share, _words(link.meeting), bool(link.meeting.difference)]


def _words(meeting: Meeting) -> str:
    """`all_gather number 3 of default_pg, 1.1 KiB from each rank, for layers.0`."""
    call = meeting.call
    size = format_bytes(call.bytes)
    module = say("for {modules}", modules=module_words(call.module)) if call.module is not None else ""
    if kind_of(meeting) == "message":
        way = " → ".join(str(part.rank) for part in meeting.parts)
        what = say("message number {number} from rank {way}", number=call.sequence, way=way)
    else:
        what = say("{kind} number {number} of {group}", kind=call.kind, number=call.sequence, group=meeting.group.label)
        size = say("{size} from each rank", size=size)
    return ", ".join(filter(None, (what, size if call.bytes else "", module)))


def _row(row: CollectiveRow) -> list[Any]:
    what = [row.kind, row.count, size_words(row), cause_words(row), group_words(row)]
    return [*what, site_words(row.site), first_line(row.site), difference_words(row.meeting)]


def _left_out(drawn: StepLanes) -> list[str]:
    """What the drawing does not show, in sentences."""
    found = []
    if drawn.modules_left_out:
        found.append(say("Not drawn: {modules} inside others.", modules=counted(drawn.modules_left_out, "module")))
    if drawn.kinds_left_out:
        found.append(say("Without a lane: {kinds} of ranks.", kinds=counted(drawn.kinds_left_out, "kind")))
    if len(drawn.links) > MOST_LINKS:
        found.append(say("Only the first {count} collectives are drawn; the table tells of all.", count=f"{MOST_LINKS:,}"))
    return found
