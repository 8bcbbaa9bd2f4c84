"""What the picture of devices says: names of its blocks, what a device holds, what goes where and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.records.trace import Move
from devwidget.report.style.units import count_words, format_bytes, format_seconds, some_bytes
from devwidget.report.style.words import code_word, module_words, parts_words, place_words, row_words, tensor_words
from devwidget.views.blocks import Block
from devwidget.views.devices import DeviceColumn, Kind, Picture, Way
from devwidget.views.sums import items_once, total

_MOST_EXAMPLES = 3
KINDS: dict[Kind, Message] = {
    "copy": Message("copies; the thicker, the more bytes"),
    "gradient": Message("gradients, sent back"),
    "healed": Message("misplaced: moved by the trace so that the step could continue"),
    "stopped": Message("the step stopped here"),
}
"""What lines of a kind are."""


def block_name(block: Block) -> str:
    """`lower.0–5`: which modules; of a tensor what the code calls it."""
    match block.what:
        case "tensor":
            return block.name or tensor_words(block.dtype, block.shape)
        case "batch":
            return say("batch")
        case "outputs":
            return say("outputs")
        case "gradients":
            return say("gradients")
        case "replica":
            return say("replica {number}", number=block.number)
    if block.call is not None:
        return block.class_name
    if len(block.paths) == 1:
        return module_words(block.path)
    last = block.paths[-1].rpartition(".")[2]
    if last.isdigit() or len(block.paths) > 2:
        return f"{block.path}–{last}"
    return f"{block.path}, {last}"


def block_kind(block: Block) -> str:
    """`6 × Block`: of what kind, and what it does here."""
    match block.what:
        case "batch" | "replica":
            return count_words(block.samples, "sample")
        case "outputs":
            return say("gathered")
        case "gradients":
            return say("summed")
        case "tensor":
            return tensor_words(block.dtype, block.shape) if block.name else ""
    if block.call is not None:
        return say("the copy that is kept")
    kind = block.class_name
    if len(block.paths) > 1:
        kind = f"{len(block.paths)} × {kind or say('modules')}"
    if block.what == "visit":
        return say("{kind}, runs here", kind=kind)
    return kind


def block_title(block: Block) -> str:
    """All that is known of a block, for its tooltip."""
    lines = [row_words((block_name(block), block_kind(block))), row_words((str(block.device), some_bytes(block.bytes)))]
    if block.call is not None:
        lines.append(place_words(block.call.call.site))
    if block.what == "visit":
        lines.append(say("its weights are on another device and are copied here for each call"))
    if block.wrong and block.what != "tensor":
        lines.append(say("an error was found here"))
    return "\n".join(lines)


def column_title(column: DeviceColumn, blocks: Iterable[Block]) -> str:
    """`cuda:0: 43.9 MiB of 128 MiB at the peak, 3 parts`."""
    modules = _modules_on(column, blocks)
    count = count_words(len(items_once(modules, "paths")), "module")
    facts = row_words((taken_words(column, modules)[0], count, parts_words(column.parts)))
    return say("{first}: {second}", first=column.device, second=facts)


def _modules_on(column: DeviceColumn, blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if (block.device, block.what) == (column.device, "module")]


def taken_words(column: DeviceColumn, blocks: Iterable[Block]) -> list[str]:
    """How full a device is, in forms from long to short."""
    if column.refused:
        size, capacity = format_bytes(column.refused), some_bytes(column.capacity)
        return [say("{size} did not fit", size=size), f"> {capacity}" if capacity else size]
    held = total(_modules_on(column, blocks), "bytes")
    if not held and not column.device.is_accelerator:
        return [""]
    if not column.capacity or not column.device.is_accelerator:
        return [say("holds {size}", size=format_bytes(held)), format_bytes(held)]
    size = format_bytes(column.taken)
    share = say("{size} of {capacity}", size=size, capacity=format_bytes(column.capacity))
    if column.is_peak:
        return [say("{share} at its peak", share=share), share, size]
    return [share, size]


def idle_words() -> list[str]:
    """In a column of an unused device, on separate lines."""
    return [say("holds"), say("nothing")]


def way_title(way: Way, picture: Picture) -> str:
    """Return what is copied on a path, and the lines that request it."""
    facts = [code_word(way.step), format_bytes(way.bytes)]
    if way.moves:
        facts.append(count_words(way.count, "hop"))
    seconds = sum(move.seconds for move in way.moves)
    if seconds:
        facts.append(say("{time} on the host", time=format_seconds(seconds)))
    source, target = picture.blocks[way.source], picture.blocks[way.target]
    head = f"{source.device} → {target.device}: {row_words(facts)}"
    return "\n".join([head, *_reason_lines(way), *_example_lines(way.moves)])


def _reason_lines(way: Way) -> list[str]:
    if way.call is not None:
        return [place_words(way.call.call.site)]
    if way.fault is not None:
        return [
            say("{first}: {second}", first=said(KINDS["stopped"]), second=way.fault.error.splitlines()[0]),
            place_words(way.fault.site),
        ]
    if way.kind == "copy":
        return []
    return [said(KINDS[way.kind])]


def _example_lines(moves: Collection[Move]) -> list[str]:
    """The first kinds of what goes there, and how many more there are."""
    words = list(dict.fromkeys(map(_move_words, moves)))
    lines = words[:_MOST_EXAMPLES]
    if len(words) > _MOST_EXAMPLES:
        lines.append(say("and {count} more", count=len(words) - _MOST_EXAMPLES))
    return lines


def _move_words(move: Move) -> str:
    cause = code_word(move.cause)
    if move.cause == "hook":
        cause = say("hook of {module}", module=module_words(move.module))
    return row_words((tensor_words(move.dtype, move.shape), cause, place_words(move.site)))
