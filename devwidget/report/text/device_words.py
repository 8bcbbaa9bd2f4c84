"""What the picture of devices says: names of its blocks, what a device holds, what goes where and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from devwidget.language.speaking import say
from devwidget.records.trace import Move
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import code_word, first_line, module_words, part_name, row_words, site_words, tensor_words
from devwidget.report.text.parallel_words import part_lines
from devwidget.views.blocks import Block
from devwidget.views.devices import DeviceColumn, Picture, Way
from devwidget.views.sums import total

_MOST_EXAMPLES = 3


def block_name(block: Block) -> str:
    """`lower.0–5`: which modules; of a tensor what the code calls it."""
    if block.what == "tensor":
        return block.name or tensor_words(block.dtype, block.shape)
    if block.what == "batch":
        return say("batch")
    if block.what == "outputs":
        return say("outputs")
    if block.what == "gradients":
        return say("gradients")
    if block.what == "replica":
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
    if block.what in ("batch", "replica"):
        return count_words(block.samples, "sample")
    if block.what == "outputs":
        return say("gathered")
    if block.what == "gradients":
        return say("summed")
    if block.what == "tensor":
        if block.name:
            return tensor_words(block.dtype, block.shape)
        return ""
    if block.call is not None:
        return say("the copy that is kept")
    if len(block.paths) == 1:
        kind = block.class_name
    else:
        kind = f"{len(block.paths)} × {block.class_name or say('modules')}"
    if block.what == "visit":
        return say("{kind}, runs here", kind=kind)
    return kind


def block_title(block: Block) -> str:
    """All of it, for whoever points at it."""
    if block.call is not None:
        return "\n".join(part_lines(block.call, block.what, block.number))
    if block.bytes:
        size = format_bytes(block.bytes)
    else:
        size = ""
    lines = [row_words((block_name(block), block_kind(block))), row_words((str(block.device), size))]
    if block.what == "visit":
        lines.append(say("its weights are on another device and are copied here for each call"))
    if block.wrong and block.what != "tensor":
        lines.append(say("an error was found here"))
    return "\n".join(lines)


def column_title(column: DeviceColumn, blocks: Iterable[Block]) -> str:
    """`cuda:0: 43.9 MiB of 128 MiB at the peak, 3 parts`."""
    count = sum(len(block.paths) for block in blocks if block.device == column.device and block.what == "module")
    parts = (f"{part_name(part)} {format_bytes(size)}" for part, size in column.parts)
    return say(
        "{device}: {facts}",
        device=column.device,
        facts=row_words((taken_words(column, blocks)[0], count_words(count, "module"), *parts)),
    )


def taken_words(column: DeviceColumn, blocks: Iterable[Block]) -> list[str]:
    """How full a device is, in forms from long to short."""
    held = sum(block.bytes for block in blocks if block.device == column.device and block.what == "module")
    if column.refused:
        if column.capacity:
            short = f"> {format_bytes(column.capacity)}"
        else:
            short = format_bytes(column.refused)
        return [say("{size} did not fit", size=format_bytes(column.refused)), short]
    if not column.device.is_accelerator:
        if held:
            return [say("holds {size}", size=format_bytes(held)), format_bytes(held)]
        return [""]
    size = format_bytes(column.taken)
    if not column.capacity:
        return [say("holds {size}", size=format_bytes(held)), format_bytes(held)]
    whole = say("{size} of {capacity}", size=size, capacity=format_bytes(column.capacity))
    if column.is_peak:
        return [say("{whole} at its peak", whole=whole), whole, size]
    return [whole, size]


def idle_words() -> list[str]:
    """In a column of which nothing is used, on lines of their own."""
    return [say("holds"), say("nothing")]


def way_title(way: Way, picture: Picture) -> str:
    """What goes on a way, and the lines that ask for it."""
    if way.call is not None:
        title, *lines = part_lines(way.call, way.step, way.number)
        return "\n".join([row_words((title, format_bytes(way.bytes))), *lines])
    source, target = picture.blocks[way.source], picture.blocks[way.target]
    seconds = sum(move.seconds for move in way.moves)
    if seconds:
        cost = say("{time} on the host", time=format_seconds(seconds))
    else:
        cost = ""
    if way.moves:
        hops = count_words(way.count, "hop")
    else:
        hops = ""
    facts = row_words((format_bytes(way.bytes), hops, cost))
    head = f"{source.device} → {target.device}: {facts}"
    return "\n".join([head, *_reason_lines(way), *_example_lines(way.moves)])


def _reason_lines(way: Way) -> list[str]:
    if way.fault is not None:
        return [
            say("the step stopped here: {error}", error=way.fault.error.splitlines()[0]),
            _line_words(site_words(way.fault.site), first_line(way.fault.site)),
        ]
    if way.kind == "healed":
        return [say("misplaced: moved by the trace so that the step could continue")]
    if way.kind == "gradient":
        return [say("gradients, sent back")]
    return []


def _example_lines(moves: Collection[Move]) -> list[str]:
    """The first kinds of what goes there, and how many more there are."""
    kinds = {
        (move.dtype, move.shape, move.cause, move.site, move.module if move.cause == "hook" else ""): move for move in moves
    }
    lines = [_move_words(move) for move in list(kinds.values())[:_MOST_EXAMPLES]]
    return lines + ([say("and {count} more", count=len(kinds) - _MOST_EXAMPLES)] if len(kinds) > _MOST_EXAMPLES else [])


def _move_words(move: Move) -> str:
    if move.cause == "hook":
        by = say("hook of {module}", module=module_words(move.module))
    else:
        by = code_word(move.cause)
    return _line_words(row_words((tensor_words(move.dtype, move.shape), by, site_words(move.site))), first_line(move.site))


def _line_words(place: str, code: str) -> str:
    if code:
        return f"{place}  {code}"
    return place


def crossing_words(picture: Picture) -> list[str]:
    """What crosses, in sentences; [] where nothing does."""
    moves = [move for way in picture.ways if way.kind != "gradient" for move in way.moves]
    back = [move for way in picture.ways if way.kind == "gradient" for move in way.moves]
    if moves:
        words = [_sum_words(say("Forward"), moves)]
    else:
        words = []
    return words + ([_sum_words(say("Backward"), [*back, *picture.elsewhere])] if back or picture.elsewhere else [])


def _sum_words(phase: str, moves: list[Move]) -> str:
    hops, size = total(moves, "count"), total(moves, "all_bytes")
    hooks = sum(move.count for move in moves if move.cause == "hook")
    facts = {"phase": phase, "hops": count_words(hops, "hop"), "size": format_bytes(size)}
    if hooks:
        return say("{phase}: {hops}, {size}, {hooks} of them by hooks of accelerate.", hooks=hooks, **facts)
    return say("{phase}: {hops}, {size}.", **facts)
