"""A DataParallel call, and other ways to spread a model, as small dictionaries of texts that a page draws unchanged."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.report.style.units import format_bytes
from devwidget.report.text.advice import idle_advice
from devwidget.report.text.parallel_words import (
    parallel_summary,
    parallel_title,
    parallel_words,
    replica_card,
)
from devwidget.views.parallel import ParallelCall
from devwidget.views.parallel_wrappers import WRAPPERS, Share, Spread, find_spreads
from devwidget.views.sums import total

Card = dict[str, Any]


def parallel_card(call: ParallelCall) -> Card:
    """One DataParallel module: the drawing, a row for each replica, what it costs and what to change."""
    return {
        "title": parallel_title(call),
        "summary": parallel_summary(call),
        "replicas": [replica_card(call, replica) for replica in call.replicas],
        "idle": list(map(str, call.idle)),
        "words": list(parallel_words(call)),
        "advice": list(map(dataclasses.asdict, idle_advice(call))),
    }


MOST_ROWS = 200


def spread_cards(snapshot: Snapshot) -> list[Card]:
    """One card for each way in which the model is spread."""
    return list(map(_spread_card, find_spreads(snapshot)))


def _spread_card(spread: Spread) -> Card:
    card: Card = {
        "kind": spread.kind,
        "title": said(_TITLES.get(spread.kind, spread.kind)),
        "path": spread.path,
        "words": list(_spread_words(spread)),
        "code": "",
        "rows": [],
        "more": max(0, len(spread.shares) - MOST_ROWS),
    }
    if spread.kind in _TITLES:
        card["path"] = None
    if spread.kind in WRAPPERS and spread.keys:
        prefix = f"{spread.path}.module.".lstrip(".")
        card["words"].append(_prefix_note(spread, prefix))
        card["code"] = f"torch.save(model.{prefix}state_dict(), path)"
    if spread.kind not in (*WRAPPERS, "device map"):
        card["rows"] = list(map(_share_row, spread.shares[:MOST_ROWS]))
    return card


_TITLES = {
    "accelerate": Message("Hooks of accelerate"),
    "diffusers": Message("Hooks of diffusers"),
    "device map": Message("Device map"),
    "tensor parallel": Message("Tensor parallel"),
}
"""Of those that are no wrapper at a place of the model."""


def _share_row(share: Share) -> list[str]:
    name = said(share.name) or say("the model itself")
    return [name, str(share.parts), _bytes_here(share), format_bytes(share.whole), said(share.note)]


def _bytes_here(*shares: Share) -> str:
    """`cuda:0 1.00 MiB, cpu 3.00 MiB`, all shares together."""
    sizes: dict[DeviceId, int] = {}
    for share in shares:
        for device, size in share.here:
            sizes[device] = sizes.get(device, 0) + size
    return ", ".join(f"{device} {format_bytes(size)}" for device, size in sizes.items()) or say("nothing")


_SHARDED = Message("Each module is gathered for its forward and its backward. The other processes are not shown.")
_HOOKED = Message(
    "Hooks move the inputs to the device where each module runs, and load offloaded weights for each of its forwards."
)
_ABOUT = {
    "DistributedDataParallel": Message(
        "Each process holds a full copy; gradients are averaged over them in backward. The other processes are not shown."
    ),
    "FSDP2": _SHARDED,
    "FSDP": _SHARDED,
    "tensor parallel": Message("The tensors are spread over the ranks. The other processes are not shown."),
    "accelerate": _HOOKED,
    "diffusers": _HOOKED,
}


def _spread_words(spread: Spread) -> Iterator[str]:
    """Its settings, what this process holds, and how it works."""
    if spread.kind == "device map":
        yield re.sub(r"\b(\d+) x", r"GPU \1 x", spread.note)  # a device map may call a GPU by its number
    elif spread.kind in WRAPPERS and spread.note:
        yield said(spread.note)
    whole = format_bytes(total(spread.shares, "whole"))
    yield say("In this process: {here} of {whole}.", here=_bytes_here(*spread.shares), whole=whole)
    if spread.kind in _ABOUT:
        yield said(_ABOUT[spread.kind])


def _prefix_note(spread: Spread, prefix: str) -> str:
    return say(
        "The names of its parameters and buffers ({keys}) begin with `{prefix}`; a model without the wrapper does not have"
        " that prefix. Save and load the state of the inner module.",
        keys=f"{spread.keys:,}",
        prefix=prefix,
    )
