"""A DataParallel call, and other ways to spread a model, as small dictionaries of texts that a page draws unchanged."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.device import DeviceId
from devwidget.records.parallel import Replica
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.report.style.units import count_words, format_bytes, some_bytes, some_seconds
from devwidget.report.style.words import row_words
from devwidget.report.text.advice import idle_advice
from devwidget.report.text.parallel_words import (
    card_words,
    parallel_summary,
    parallel_title,
    parallel_words,
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
        "replicas": [_replica_card(call, replica) for replica in call.replicas],
        "idle": list(map(str, call.idle)),
        "words": parallel_words(call),
        "advice": list(map(dataclasses.asdict, idle_advice(call))),
    }


def _replica_card(call: ParallelCall, replica: Replica) -> Card:
    known = call.memory.get(replica.device)
    gradients = some_bytes(replica.gradient_bytes)
    if call.call.backward:
        gradients = gradients or say("own")
    return {
        "device": str(replica.device),
        "card": card_words(call, replica.device),
        "uuid": known.uuid if known is not None else "",
        "samples": replica.samples,
        "input": format_bytes(replica.input_bytes),
        "parameters": some_bytes(replica.parameter_bytes) or say("own"),
        "output": format_bytes(replica.output_bytes),
        "gradients": gradients,
        "peak": some_bytes(call.peak_on(replica.device)),
        "time": some_seconds(replica.seconds),
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
        "words": list(_WORDS[spread.kind](spread)),
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


def _sizes_of(spread: Spread) -> dict[str, str]:
    """What this process holds of a model, and how much that is with all shards."""
    return {"here": _bytes_here(*spread.shares), "whole": format_bytes(total(spread.shares, "whole"))}


def _prefix_note(spread: Spread, prefix: str) -> str:
    return say(
        "The names of its parameters and buffers ({keys}) begin with `{prefix}`; a model without the wrapper does not have"
        " that prefix. Save and load the state of the inner module.",
        keys=f"{spread.keys:,}",
        prefix=prefix,
    )


def _data_parallel_notes(spread: Spread) -> Iterator[str]:
    if "calls the module directly" in spread.note:
        yield say(
            "No GPU was available when it was built: it calls the module directly, {where}. Nothing is split or copied.",
            where=_bytes_here(*spread.shares),
        )
    elif spread.note:
        yield say("One process, {note}.", note=said(spread.note))


def _distributed_notes(spread: Spread) -> Iterator[str]:
    yield say(
        "This process is {one} and holds a full copy: {here}.",
        one=said(spread.note) or say("one of several"),
        here=_bytes_here(*spread.shares),
    )
    yield say("Gradients are averaged over the processes in backward. The other processes are not shown.")


def _sharded_notes(spread: Spread) -> Iterator[str]:
    yield say(
        "{modules} are sharded; this process holds {here} of {whole}.",
        modules=count_words(len(spread.shares), "module"),
        **_sizes_of(spread),
    )
    yield say("Each module is gathered for its forward and its backward. The other processes are not shown.")


def _tensor_parallel_notes(spread: Spread) -> Iterator[str]:
    yield say(
        "The tensors of {modules} are spread over the ranks; this process holds {here} of {whole}. The other processes are"
        " not shown.",
        modules=count_words(len(spread.shares), "module"),
        **_sizes_of(spread),
    )


def _offloaded_notes(spread: Spread) -> Iterator[str]:
    yield say(
        "Hooks move the inputs to the device where each module runs. In memory now: {here} of {whole}.",
        **_sizes_of(spread),
    )
    if any("offload" in share.note for share in spread.shares):
        yield say("Offloaded weights are loaded for each forward of their module and freed after it.")


def _device_map_notes(spread: Spread) -> Iterator[str]:
    places = []
    for place, count in re.findall(r"(\S+) x(\d+)", spread.note):
        name = f"GPU {place}" if place.isdigit() else place  # a device map may call a GPU by its number
        places.append(f"{name}: {count}")
    yield say("Modules by device: {modules}. In memory now: {here} of {whole}.", modules=row_words(places), **_sizes_of(spread))


_WORDS: dict[str, Callable[[Spread], Iterator[str]]] = {
    "DataParallel": _data_parallel_notes,
    "DistributedDataParallel": _distributed_notes,
    "FSDP2": _sharded_notes,
    "FSDP": _sharded_notes,
    "tensor parallel": _tensor_parallel_notes,
    "accelerate": _offloaded_notes,
    "diffusers": _offloaded_notes,
    "device map": _device_map_notes,
}
