"""The content of the page of a cluster. Each different text is sent once, and ranks refer to it by number."""

from __future__ import annotations

import datetime
from typing import Any

from devwidget.extras.ranks.records.cluster import GONE, NOWHERE, Cluster, Rank, numbers_of
from devwidget.extras.ranks.records.columns import Columns, lay_out_columns
from devwidget.extras.ranks.records.rank import OWN_DEVICE, Holding, LocalTensor
from devwidget.extras.ranks.records.traced_steps import TracedJob
from devwidget.extras.ranks.views.job import (
    HeldCollective,
    HeldRanks,
    ModuleRow,
    Span,
    find_age,
    find_coordinates,
    find_held,
    find_named,
    find_spans,
    group_alike,
    lay_out_lanes,
    module_rows,
    name_lanes,
    taken_bytes,
)
from devwidget.extras.ranks.views.meetings import collective_rows, find_meetings
from devwidget.extras.ranks.words.cluster import (
    cluster_headline,
    cluster_text,
    collective_words,
    ranks_by_state,
    row_cells,
    step_headline,
    time_words,
)
from devwidget.language.speaking import said
from devwidget.records.runs import runs_of
from devwidget.records.schema.record import presents
from devwidget.records.site import Site
from devwidget.report.page.assets import files_of_extra, page_words
from devwidget.report.page.cards import finding_card
from devwidget.report.page.html import standalone_page
from devwidget.report.page.templates import render
from devwidget.report.style.safe_text import displays_safely
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import code_word, first_line, ranks_words, row_words, site_words, tensor_words
from devwidget.views.sums import total

RANKS = (
    "words.js", "base.js", "parts.js", "edits.js", "findings.js",
    *files_of_extra("ranks", "ranks_filter.js", "ranks_map.js", "ranks_table.js", "ranks_widget.js"),
)  # fmt: skip
RANKS_STYLES = ("base.css", "panel.css", *files_of_extra("ranks", "ranks.css"))

GONE_OR_STOPPED = GONE | {"stopped"}
"""States that say more than that a rank did not reach it."""
MOST_COLUMNS = 24
"""Kinds of ranks on a page; further kinds are only counted."""


def _placement_columns(columns: Columns) -> dict[str, Any]:
    shown = columns.each[:MOST_COLUMNS]
    numbers: dict[Holding | None, int] = {None: NOWHERE}
    for column in shown:
        for holding in column.held:
            numbers.setdefault(holding, len(numbers) - 1)
    rows = module_rows(columns)
    return {
        "columns": [[ranks_words(runs_of(each.ranks)), format_bytes(each.bytes), runs_of(each.ranks)] for each in columns.each],
        "modules": [_module_row(columns, row, [numbers[each.held[row.number]] for each in shown]) for row in rows],
        "holdings": [_holding_cells(holding) for holding in numbers if holding is not None],
        "more": len(columns.each) - len(shown),
    }


def _module_row(columns: Columns, row: ModuleRow, held: list[int]) -> dict[str, Any]:
    module = columns.modules[row.number]
    known = {"path": module.path, "name": row.name, "kind": module.class_name, "wrapper": module.wrapper, "depth": row.depth}
    return {**known, "times": row.times, "held": held}


def _holding_cells(holding: Holding) -> list[Any]:
    here, whole = total(holding, "local_bytes"), total(holding, "bytes")
    size = format_bytes(here) if holding else ""
    if here != whole:
        size = f"{size} of {format_bytes(whole)}"
    placed = dict.fromkeys(map(_placed_words, holding))
    return [" | ".join(placed), size, list(map(_tensor_cells, holding)), bool(whole and not here)]


def _placed_words(tensor: LocalTensor) -> str:
    placed = tensor.placement or "whole"
    if tensor.device == OWN_DEVICE:
        return placed
    return f"{placed} on {tensor.device}"


def _tensor_cells(tensor: LocalTensor) -> list[str]:
    local = tensor_words(tensor.dtype, tensor.local_shape)
    if tensor.local_shape != tensor.shape:
        local = f"{local} of {tensor_words(tensor.dtype, tensor.shape)}"
    words = [code_word(tensor.role)]
    if tensor.role == "parameter" and not tensor.requires_grad:
        words.append("frozen")
    if tensor.note:
        words.append(said(tensor.note))
    return [tensor.name, local, _placed_words(tensor), " · ".join(words)]


def _step_content(job: TracedJob | None) -> dict[str, Any] | None:
    if job is None:
        return None
    met = find_meetings(job)
    return {"title": step_headline(job, met), "rows": list(map(row_cells, collective_rows(met)))}


Content = dict[str, Any]
TROUBLE = ("raised", "dead", "hung", "stopped", "terminated", "unknown", "busy", "stale", "answered", "ended")
"""States, worst first."""


@displays_safely
def ranks_content(cluster: Cluster) -> Content:
    """Return everything that the panel of a job shows."""
    columns, asked, states = lay_out_columns(cluster), "", ranks_by_state(cluster)
    named, alike = find_named(cluster), map(numbers_of, group_alike(cluster))
    if cluster.asked:
        asked = datetime.datetime.fromtimestamp(cluster.asked).strftime("%H:%M:%S")
    return {
        "title": cluster_headline(cluster, len(columns.each)),
        "asked": asked,
        "axes": [[axis.name, axis.size] for axis in cluster.axes],
        "states": [[state, len(states[state])] for state in TROUBLE if state in states],
        "lanes": list(map(list, lay_out_lanes(cluster))),
        "lane_names": list(name_lanes(cluster)),
        "named": sorted(named),
        **_ranks_content(cluster, columns),
        "held": list(map(_held_content, find_held(cluster))),
        "alike": sorted(map(runs_of, alike), key=lambda runs: runs[0][0] not in named),
        "spans": list(map(_span_content, find_spans(cluster, columns))),
        "findings": [finding_card(finding, -1) for finding in cluster.findings],
        "checked": list(cluster.checked),
        "not_checked": list(map(said, cluster.not_checked)),
        "step": _step_content(cluster.traced),
        **_placement_columns(columns),
    }


def _ranks_content(cluster: Cluster, columns: Columns) -> Content:
    column_of = columns.place_ranks()
    stacks: dict[tuple[Site, ...], int] = {}
    ranks = []
    for rank in cluster.ranks:
        content = _rank_content(cluster, rank)
        if rank.number in column_of:
            content["column"] = column_of[rank.number]
        # Where nothing is wrong a stack tells nothing.
        if rank.said.stack and (rank.state != "answered" or cluster.findings):
            content["stack"] = stacks.setdefault(rank.said.stack, len(stacks))
        ranks.append(content)
    return {"ranks": ranks, "stacks": [list(map(_site_cells, stack)) for stack in stacks]}


def _site_cells(site: Site | None) -> list[str]:
    """Return the place of a line and its code; two empty texts without a line."""
    if site is None:
        return ["", ""]
    return [site_words(site), first_line(site)]


def _rank_content(cluster: Cluster, rank: Rank) -> Content:
    """Return one rank without unknown fields, because there may be a thousand."""
    process, memory = "", []
    now, peak = taken_bytes(rank)
    if rank.said.pid:
        process = f"process {rank.said.pid}"
    if now >= 0:
        memory.append(f"{format_bytes(now)} allocated")
    if peak > 0:
        memory.append(f"peak {format_bytes(peak)}")
    content = {
        "state": rank.state,
        "at": list(find_coordinates(cluster, rank)),
        "taken": now,
        "step": rank.step,
        "memory": row_words(memory),
        "where": f"{rank.said.host} {process}".strip(),
        "device": str(rank.said.device or ""),
        "note": said(rank.note),
        "age": time_words(find_age(cluster, rank)),
        "waits": _wait_words(rank),
    }
    return {name: value for name, value in content.items() if value not in ("", NOWHERE)}


def _held_content(held: HeldCollective) -> Content:
    return {
        "what": collective_words(held.collective),
        "came": f"{held.came} of {len(held.collective.ranks)} ranks wait in it",
        "rows": list(map(_held_row, held.rows)),
    }


def _held_row(row: HeldRanks) -> Content:
    waits = f"waiting{time_words(row.seconds, ' for ')}"
    words = {
        "absent": "not reached",
        "unknown": "unknown whether reached",
        "waiting": waits,
        "behind": f"{waits}, in other collectives",
    }
    if row.state in GONE_OR_STOPPED:
        words["absent"] = code_word(row.state)
    who, place = ranks_words(row.ranks), _site_cells(row.site)
    return {"role": row.role, "who": who, "first": row.first, "place": place, "said": words[row.role]}


def _wait_words(rank: Rank) -> str:
    waits = rank.said.waits
    if waits is None or rank.state == "raised":
        return ""
    words = [collective_words(waits) + time_words(waits.seconds, " for ")]
    if waits.bytes:
        words.append(format_bytes(waits.bytes))
    return row_words(words)


def _span_content(span: Span) -> Content:
    (least, lowest), (most, highest) = span.least, span.most
    return {
        "name": span.name,
        "least": [format_bytes(least), lowest],
        "median": format_bytes(span.median),
        "most": [format_bytes(most), highest],
        "outlier": span.outlier if span.outlier != NOWHERE else None,
        "share": [round(least / most, 3), round(span.median / most, 3), 1],
    }


@presents("html", Cluster)
def cluster_page(cluster: Cluster) -> str:
    """Return the whole panel as one HTML file."""
    state = {"words": page_words(*RANKS), "content": ranks_content(cluster)}
    title = cluster_headline(cluster, len(lay_out_columns(cluster).each))
    return standalone_page(title, plain_cluster(cluster), RANKS, RANKS_STYLES, state)


@presents("notebook", Cluster)
def plain_cluster(cluster: Cluster) -> str:
    """Return the text for hosts without widgets."""
    return render("plain.html", text=cluster_text(cluster))
