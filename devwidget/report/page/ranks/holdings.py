"""What each module holds on the ranks of each kind: a row for each module, a number for each column."""

from __future__ import annotations

from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.rank import OWN_DEVICE, Holding, LocalTensor
from devwidget.report.style.code_words import code_word
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import tensor_words
from devwidget.views.ranks.modules import ModuleRow, module_rows

MOST_COLUMNS = 24
"""Kinds of ranks on a page; more are told in words."""


def placement_columns(cluster: Cluster) -> dict[str, Any]:
    """Modules, each with the number of what it holds in each column; what is held, once."""
    places = cluster.placements[:MOST_COLUMNS]
    return {
        "modules": [_row(cluster, row, [place.held[row.number] for place in places]) for row in module_rows(cluster)],
        "holdings": [_holding(holding) for holding in cluster.holdings],
        "more": len(cluster.placements) - len(places),
    }


def _row(cluster: Cluster, row: ModuleRow, held: list[int]) -> dict[str, Any]:
    module = cluster.modules[row.number]
    known = {"path": module.path, "name": row.name, "kind": module.class_name, "wrapper": module.wrapper, "depth": row.depth}
    return {**known, "times": row.times, "held": held}


def _holding(holding: Holding) -> list[Any]:
    """How it is placed, how much of it is here, and each tensor."""
    here, whole = sum(each.local_bytes for each in holding), sum(each.bytes for each in holding)
    placed = list(dict.fromkeys(_placed(each) for each in holding))
    size = format_bytes(here)
    if here != whole:
        size = say("{size} of {whole}", size=size, whole=format_bytes(whole))
    return [" | ".join(placed), size if holding else "", [_tensor(each) for each in holding], bool(whole and not here)]


def _placed(tensor: LocalTensor) -> str:
    placed = tensor.placement or say("whole")
    return placed if tensor.device == OWN_DEVICE else say("{placement} on {device}", placement=placed, device=tensor.device)


def _tensor(tensor: LocalTensor) -> list[str]:
    local = tensor_words(tensor.dtype, tensor.local_shape)
    if tensor.local_shape != tensor.shape:
        local = say("{size} of {whole}", size=local, whole=tensor_words(tensor.dtype, tensor.shape))
    grad = "" if tensor.requires_grad or tensor.role != "parameter" else say("frozen")
    return [tensor.name, local, _placed(tensor), " · ".join(filter(None, (code_word(tensor.role), grad, said(tensor.note))))]
