"""A DataParallel call, and what else spreads a model, as small dictionaries of words that a page can draw as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.parallel import Replica
from devwidget.records.schema.message import Message, out_of_row
from devwidget.records.snapshot import Snapshot
from devwidget.report.style.units import count_words, format_bytes, some_bytes, some_seconds
from devwidget.report.style.words import row_words
from devwidget.report.text.advice import parallel_advice
from devwidget.report.text.parallel_words import (
    card_words,
    parallel_summary,
    parallel_title,
    parallel_words,
)
from devwidget.views.parallel import ParallelCall
from devwidget.views.parallel_wrappers import WRAPPERS, Share, Spread, find_spreads

Card = dict[str, Any]


def parallel_card(call: ParallelCall) -> Card:
    """One DataParallel module: the drawing, a row for each replica, what it costs and what to change."""
    return {
        "title": parallel_title(call),
        "summary": parallel_summary(call),
        "replicas": [_replica_card(call, replica) for replica in call.replicas],
        "idle": [str(device) for device in call.idle],
        "words": parallel_words(call),
        "advice": [{"about": each.about, "text": each.text, "code": each.code} for each in parallel_advice(call)],
    }


def _replica_card(call: ParallelCall, replica: Replica) -> Card:
    peak, known, own = call.peak_on(replica.device), call.memory.get(replica.device), say("own")
    return {
        "device": str(replica.device),
        "card": card_words(call, replica.device),
        "uuid": known.uuid if known is not None else "",
        "samples": replica.samples,
        "input": format_bytes(replica.input_bytes),
        "parameters": format_bytes(replica.parameter_bytes) if replica.parameter_bytes else own,
        "output": format_bytes(replica.output_bytes),
        "gradients": format_bytes(replica.gradient_bytes)
        if replica.gradient_bytes
        else say("own")
        if call.call.backward
        else "",
        "peak": some_bytes(peak),
        "time": some_seconds(replica.seconds),
    }


MOST_ROWS = 200
MOST_DRAWN = 16
"""Ranks; the shards of more are told in words alone."""


def spread_cards(snapshot: Snapshot) -> list[Card]:
    """One card for each way in which the model is spread."""
    return [_spread_card(spread) for spread in find_spreads(snapshot)]


def _spread_card(spread: Spread) -> Card:
    if spread.path:
        inside = f"{spread.path}.module.state_dict()"
    else:
        inside = "module.state_dict()"
    if spread.kind in WRAPPERS and spread.keys:
        saved = f"torch.save(model.{inside}, path)"
    else:
        saved = ""
    return {
        "kind": spread.kind,
        "title": said(_TITLES.get(spread.kind, spread.kind)),
        "path": None if spread.kind in _TITLES else spread.path,
        "words": [*_WORDS[spread.kind](spread), *_prefix_notes(spread)],
        "code": saved,
        "rows": [] if spread.kind in (*WRAPPERS, "device map") else [_share_row(share) for share in spread.shares[:MOST_ROWS]],
        "more": max(0, len(spread.shares) - MOST_ROWS),
    }


_TITLES = {
    "accelerate": Message("Hooks of accelerate"),
    "device map": Message("Device map"),
    "tensor parallel": Message("Tensor parallel"),
}
"""Of those that are no wrapper at a place of the model."""


def _share_row(share: Share) -> list[str]:
    note = row_words(_draw_shard(part) + said(part) for part in out_of_row(share.note))
    return [said(share.name) or say("the model itself"), str(share.parts), _bytes_here(share), format_bytes(share.whole), note]


def _draw_shard(part: str) -> str:
    """`▯▮▯▯ ` before `shard 1 of 4`: the shard of this process among those of the others."""
    shard = re.match(r"shard (\d+) of (\d+)", part)
    if shard:
        here, ranks = (int(shard[1]), int(shard[2]))
    else:
        here, ranks = (0, 0)
    if here < ranks <= MOST_DRAWN:
        return f"{'▯' * here}▮{'▯' * (ranks - here - 1)} "
    return ""


def _bytes_here(*shares: Share) -> str:
    """`cuda:0 1.00 MiB, cpu 3.00 MiB`, all shares together."""
    total: dict[str, int] = {}
    for device, size in (each for share in shares for each in share.here):
        total[str(device)] = total.get(str(device), 0) + size
    return ", ".join(f"{device} {format_bytes(size)}" for device, size in total.items()) or say("nothing")


def _whole_words(spread: Spread) -> str:
    return format_bytes(sum(share.whole for share in spread.shares))


def _prefix_notes(spread: Spread) -> list[str]:
    if spread.kind not in WRAPPERS or not spread.keys:
        return []
    prefix = f"{spread.path}.module." if spread.path else "module."
    return [
        say(
            "The names of its parameters and buffers ({keys}) begin with `{prefix}`; a model without the wrapper does not"
            " have that prefix. Save and load the state of the inner module.",
            keys=f"{spread.keys:,}",
            prefix=prefix,
        )
    ]


def _data_parallel_notes(spread: Spread) -> list[str]:
    if "calls the module directly" in spread.note:
        where = _bytes_here(*spread.shares)
        return [
            say(
                "No GPU was available when it was built: it calls the module directly, {where}. Nothing is split or copied.",
                where=where,
            )
        ]
    if spread.note:
        return [say("One process, {note}.", note=said(spread.note))]
    return []


def _distributed_notes(spread: Spread) -> list[str]:
    return [
        say(
            "This process is {one} and holds a full copy: {here}.",
            one=said(spread.note) or say("one of several"),
            here=_bytes_here(*spread.shares),
        ),
        say("Gradients are averaged over the processes in backward. The other processes are not shown."),
    ]


def _sharded_notes(spread: Spread) -> list[str]:
    return [
        say(
            "{modules} are sharded; this process holds {here} of {whole}.",
            modules=count_words(len(spread.shares), "module"),
            here=_bytes_here(*spread.shares),
            whole=_whole_words(spread),
        ),
        say("Each module is gathered for its forward and its backward. The other processes are not shown."),
    ]


def _tensor_parallel_notes(spread: Spread) -> list[str]:
    return [
        say(
            "The tensors of {modules} are spread over the ranks; this process holds {here} of {whole}. The other"
            " processes are not shown.",
            modules=count_words(len(spread.shares), "module"),
            here=_bytes_here(*spread.shares),
            whole=_whole_words(spread),
        )
    ]


def _offloaded_notes(spread: Spread) -> list[str]:
    return [
        say(
            "Hooks of accelerate move the inputs to the device where each module runs. In memory now: {here} of {whole}.",
            here=_bytes_here(*spread.shares),
            whole=_whole_words(spread),
        ),
        *(
            [say("Offloaded weights are loaded for each forward of their module and freed after it.")]
            if _is_offloaded(spread)
            else []
        ),
    ]


def _is_offloaded(spread: Spread) -> bool:
    return any("offload" in share.note for share in spread.shares)


def _place_words(place: str) -> str:
    """A GPU that a device map calls by its number."""
    if place.isdigit():
        return f"GPU {place}"
    return place


def _device_map_notes(spread: Spread) -> list[str]:
    return [
        say(
            "Modules by device: {modules}. In memory now: {here} of {whole}.",
            modules=row_words(f"{_place_words(place)}: {count}" for place, count in re.findall(r"(\S+) x(\d+)", spread.note)),
            here=_bytes_here(*spread.shares),
            whole=_whole_words(spread),
        )
    ]


_WORDS: dict[str, Callable[[Spread], list[str]]] = {
    "DataParallel": _data_parallel_notes,
    "DistributedDataParallel": _distributed_notes,
    "FSDP2": _sharded_notes,
    "FSDP": _sharded_notes,
    "tensor parallel": _tensor_parallel_notes,
    "accelerate": _offloaded_notes,
    "device map": _device_map_notes,
}
