"""Who keeps memory in use, as rows: bytes, the holder, what it holds, the line, and what frees it."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import said, say
from devwidget.records.held_memory import DeviceHolders, HeldMemory, MemoryHolder
from devwidget.report.page.draw_page import writes
from devwidget.report.report_parts import Part, Sentence, Table
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import name_holder, part_name, parts_words, place_words, row_words

_LEAST_SHARE = 1 / 100
"""Share of the memory in use below which a holder has no row."""
_NEARLY_ALL = 0.98
"""Share of a holder's bytes from which on a part has no size of its own."""
_WIDEST = 120
_MOST_OTHERS = 2
_PARTS = ("parameters", "gradients", "optimizer", "graph")


@writes(HeldMemory)
def memory_parts(held: HeldMemory) -> Iterator[Part]:
    """The holders of each device."""
    if not held.devices:
        yield Sentence(say("no device has tensors"))
    yield from list_holders(held)


def list_holders(held: HeldMemory, *, is_failed: bool = False) -> Iterator[Part]:
    """A table for each device; after a failure without what frees memory, because the failed step needs most of it."""
    for device in held.devices:
        facts = {"device": device.device, "used": format_bytes(device.allocated), "total": format_bytes(device.total)}
        if is_failed:
            title = say("memory of {device} after the error: {used} of {total} in use", **facts)
        else:
            title = say("memory of {device}: {used} of {total} in use", **facts)
        shown = [each for each in device.holders if each.bytes >= _LEAST_SHARE * device.allocated]
        rows = [_row_of(each, is_failed=is_failed) for each in shown]
        yield Table(rows, right=(0,), title=title, has_heading=False, widest=_WIDEST)
        yield from _list_ways(device, is_failed=is_failed)


def _row_of(holder: MemoryHolder, *, is_failed: bool) -> tuple[str, ...]:
    parts = []
    for part in _PARTS:
        size = getattr(holder, part)
        if size > _NEARLY_ALL * holder.bytes:
            parts.append(part_name(part))
        elif size:
            parts.append(parts_words([(part, size)]))
    name = holder_words(holder, is_failed=is_failed)
    return format_bytes(holder.bytes), name, row_words(parts), place_words(holder.site)


def holder_words(holder: MemoryHolder, *, is_failed: bool) -> str:
    """`list `losses` in train(), 14 items`."""
    count = f"{holder.items:,}"
    if holder.place == "elsewhere" and holder.items:
        return say("not found in {count} objects", count=count)
    if holder.place == "elsewhere":
        return say("no variable of yours leads to it")
    if not holder.name:
        return say("the failed call of a library")
    words = said(name_holder(holder))
    if holder.items:
        words = say("{words}, {count} items", words=words, count=count)
    if holder.also and not holder.freed and not is_failed:
        others = row_words(f"`{each}`" for each in holder.also[:_MOST_OTHERS])
        return say("{words}, also kept by {others}", words=words, others=others)
    return words


def _list_ways(device: DeviceHolders, *, is_failed: bool) -> Iterator[Part]:
    """What frees memory, each way once; after a failure only what the failed step no longer needs."""
    seen = set[str]()
    for holder in device.holders:
        way = holder.place if holder.place == "traceback" else holder.frees
        is_due = not is_failed or holder.place == "traceback"
        if not is_due or holder.freed < _LEAST_SHARE * device.allocated or way in seen:
            continue
        seen.add(way)
        facts = {"code": holder.frees, "size": format_bytes(holder.freed)}
        if holder.place == "traceback":
            ask = say(
                "the frames of the last error keep {size}: raise another one, such as `1/0`, then run `gc.collect()`", **facts
            )
        elif holder.place == "output" and holder.frees.startswith("%"):
            ask = say("`{code}` frees {size}, once three other results were displayed, such as `0` in three cells", **facts)
        else:
            ask = say("`{code}` frees {size}", **facts)
        yield Sentence(ask)
    if any(
        each.place == "elsewhere" and not each.items and each.bytes >= _LEAST_SHARE * device.allocated
        for each in device.holders
    ):
        yield Sentence(say("`gc.collect()` frees what only reference cycles keep"))
