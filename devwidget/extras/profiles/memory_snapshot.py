"""Memory snapshots of `torch.cuda.memory._dump_snapshot` as a trace: the curve of each GPU, and who made its peak.

What the file does not say is inferred: modules and phases from the stacks, what bytes are for from when they were given back.

Source of the format: `torch/cuda/_memory_viz.py` and the docstring of `torch.cuda.memory._snapshot`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from devwidget.extras.profiles.allocations import FOREIGN, Allocation, History, build_curve
from devwidget.records.device import DeviceId
from devwidget.records.errors import UnreadableError
from devwidget.records.loading.json_io import reread
from devwidget.records.loading.stacks import NO_STACK, Stack, read_stack
from devwidget.records.loading.typed_reader import Unexpected
from devwidget.records.loading.untrusted_files import ReadingPlace, refuse_damaged
from devwidget.records.memory import MemoryCurve
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace

INFERRED = Message(
    "{kind}: {reason}",
    kind=Message("modules, phases and what bytes are for"),
    reason=Message("inferred from the stacks in the file and from when bytes were freed"),
)
_LARGEST = 1 << 48
# One stack stands for what was asked for, given back and lives on, in a few bytes for each of its frames.
_MOST_READINGS = 8
_AGAIN = Message("it refers to one list too many times")


def read_content(name: str, content: Any, size: int) -> Trace | None:
    """Read a memory snapshot from a file of so many bytes; None for the file of another tool."""
    if not isinstance(content, dict) or not content.keys() & {"segments", "device_traces"}:
        return None
    with refuse_damaged(lambda error: Message("not a memory snapshot of torch: {error}", error=error)) as reading:
        segments, traces = content["segments"], content["device_traces"]
        # Every event and block takes several bytes in the file: no more are looked at.
        if sum(map(len, traces)) + sum(len(segment["blocks"]) for segment in segments) > size:
            raise UnreadableError(_AGAIN)
        curves = tuple(_read_curves(segments, traces, _StackReader(_MOST_READINGS * size), reading))
        notes = [INFERRED]
        for curve in curves:
            share = 1 - owned_share(curve)
            if share:
                facts = {"share": f"{share:.1%}", "device": curve.device}
                what = Message("who owns {share} of the bytes at the peak of {device}", **facts)
                notes.append(Message("{kind}: {reason}", kind=what, reason=Message("no stack in the file")))
        reading.move_to("")
        return reread(Trace(memory=curves, not_checked=tuple(notes)))


def owned_share(curve: MemoryCurve) -> float:
    """Return the part of the bytes at the peak whose owner is known."""
    peak = curve.peak
    if peak is not None and peak.allocated:
        return 1 - peak.foreign / peak.allocated
    return 1.0


def _read_curves(
    segments: Sequence[dict[str, Any]], traces: Sequence[Sequence[dict[str, Any]]], reader: _StackReader, reading: ReadingPlace
) -> Iterator[MemoryCurve]:
    for index, events in enumerate(traces):
        own = [segment for segment in segments if segment.get("device", 0) == index]
        if events or own:
            reserved = sum(_check_bytes(segment["total_size"]) for segment in own)
            yield build_curve(DeviceId("cuda", index), _read_history(index, events, own, reader, reading), reserved)


class _StackReader:
    """Reads each stack once: torch writes one object for all occurrences of a frame, and most stacks come again.

    Args:
        most: frames that are looked at; a file can name one list of them again and again.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._known: dict[tuple[int, ...], Stack] = {}

    def __call__(self, frames: list[dict[str, Any]]) -> Stack:
        self._left -= len(frames)
        if self._left < 0:
            raise UnreadableError(_AGAIN)
        key = tuple(map(id, frames))
        if key not in self._known:
            self._known[key] = read_stack(frames)
        return self._known[key]


def _read_history(
    index: int, events: Sequence[dict[str, Any]], segments: Sequence[dict[str, Any]], read: _StackReader, reading: ReadingPlace
) -> History:
    history, phase = History(), "other"
    unknown = NO_STACK if any(event.get("frames") for event in events) else FOREIGN
    for number, event in enumerate(reading.iterate_list(f"device_traces[{index}]", events), 1):
        match event["action"]:
            case "alloc":
                stack = read(event["frames"]) if event.get("frames") else unknown
                phase = stack.phase
                # Torch writes the name into events alone, not into blocks.
                history.allocate(event["addr"], _check_bytes(event["size"]), stack, number, event.get("user_metadata", ""))
            case "free_requested":
                # Without frames: one of autograd's threads, or a file without stacks of what is freed.
                frames = event.get("frames")
                freed_in = read(frames).phase if frames else phase
                history.give_back(event["addr"], _check_bytes(event["size"]), number, freed_in)
            case "oom":
                stack = read(event["frames"]) if event.get("frames") else FOREIGN
                free = _check_bytes(event.get("device_free", 0))
                history.refused.append((number, _check_bytes(event["size"]), free, stack))
    # Blocks in use at the end that no event asked for were there at the start.
    for segment in reading.iterate_list("segments", segments):
        address = segment["address"]
        for block in segment["blocks"]:
            size, frames = _check_bytes(block["size"]), block.get("frames")
            if block["state"] == "active_allocated" and block.get("address", address) not in history.living:
                history.allocations.append(Allocation(size, read(frames) if frames else FOREIGN))
            address += size
    return history


def _check_bytes(size: int) -> int:
    if type(size) is not int or not 0 <= size < _LARGEST:
        raise Unexpected(Message("bytes, less than 2**48"), size)
    return size
