"""A model on its devices: a column for each device, blocks from top to bottom, ribbons for what crosses."""

from __future__ import annotations

from devwidget.language.speaking import say
from devwidget.records.device import DeviceId
from devwidget.records.trace import Move
from devwidget.report.figures.frame import Figure, base_layout, make_figure
from devwidget.report.figures.parallel import CURVE, draw_area
from devwidget.report.style.palette import device_hue
from devwidget.report.style.safe_text import plotly_text
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import code_word, module_words, row_words, site_words, tensor_words
from devwidget.views.device_map import Block, BlockCrossing, DeviceMap

_ROW_PX = 42
_WIDE = 0.74
"""Width of a column's boxes; the rest is for ribbons."""
_THINNEST, _THICKEST = 0.07, 0.62
_BESIDE = 0.18
"""How far above the middle of its boxes a copy of the forward pass is drawn, and below it the gradient that comes back."""
_MOST_EXAMPLES = 3
_PAGES_PX = 1000, 540
"""Figures at least this wide, and narrow ones: names are as long as their boxes are then."""
_LETTER_PX = 6.4


def device_map_figure(drawn: DeviceMap) -> Figure:
    """One box for each block in the column of its device; between them what crosses, hatched on its way back."""
    columns = {device: at for at, device in enumerate(drawn.devices)}
    data = [_draw_ribbon(each, drawn) for each in drawn.crossings]
    data += [_draw_ribbon(BlockCrossing(each.target, each.source, each.moves), drawn, back=True) for each in drawn.back]
    data += [_draw_box(block, row, columns[block.device]) for row, block in enumerate(drawn.blocks)]
    above = 1.25 if any(crossing.source < 0 for crossing in drawn.crossings) else 0.6
    layout = base_layout(30 + round(_ROW_PX * (len(drawn.blocks) - 0.4 + above)), {"l": 4, "r": 4, "t": 26, "b": 4})
    hidden = {"visible": False, "fixedrange": True}
    wide, narrow = (_draw_names(drawn, columns, page) for page in _PAGES_PX)
    layout |= {
        "annotations": wide, "showlegend": False, "hovermode": "closest",
        "xaxis": hidden | {"range": [-0.5, len(columns) - 0.5]},
        "yaxis": hidden | {"range": [len(drawn.blocks) - 0.4, -above]},
    }  # fmt: skip
    parts = (
        say("{device}: {count} parts", device=device, count=sum(len(b.paths) for b in drawn.blocks if b.device == device))
        for device in columns
    )
    words = row_words(parts, "; ")
    return make_figure(data, layout, words) | {"narrow": {"annotations": narrow}}


def _draw_names(drawn: DeviceMap, columns: dict[DeviceId, int], page: int) -> list[Figure]:
    """The names of devices and blocks, on a page of some pixels."""
    letters = int(page * _WIDE / len(columns) / _LETTER_PX)
    names = zip(drawn.blocks, _kind_lines(drawn.blocks, letters), strict=True)
    boxes = (_draw_name(block, kind, row, columns[block.device], letters) for row, (block, kind) in enumerate(names))
    return [*(_draw_title(str(device), at) for device, at in columns.items()), *boxes]


def map_words(drawn: DeviceMap) -> list[str]:
    """What crosses, in sentences; [] before a trace."""
    forward, back = ([move for crossing in way for move in crossing.moves] for way in (drawn.crossings, drawn.back))
    words = [_sum_words(say("Forward"), forward)] if forward else []
    words += [_sum_words(say("Backward"), [*back, *drawn.elsewhere])] if back or drawn.elsewhere else []
    legend = say("Ribbons are as thick as their bytes; hatched ones are gradients on their way back.")
    return [*words, legend] if back else words


def map_rows(drawn: DeviceMap) -> list[list[str]]:
    """Each way with what crosses on it: from, to, forward, backward."""
    ways = dict.fromkeys((each.source, each.target) for each in drawn.crossings)
    there = {(each.source, each.target): _way_words(each) for each in drawn.crossings}
    back = {(each.target, each.source): _way_words(each) for each in drawn.back}
    return [[_end_words(drawn, s, t), _end_words(drawn, t, s), there[s, t], back.get((s, t), "")] for s, t in ways]


def _end_words(drawn: DeviceMap, block: int, other: int) -> str:
    return ", ".join(filter(None, _block_names(drawn.blocks[block]))) if block >= 0 else say("outside")


def _way_words(crossing: BlockCrossing) -> str:
    return row_words((format_bytes(crossing.bytes), count_words(sum(move.count for move in crossing.moves), "hop")))


def block_words(block: Block) -> str:
    """`lower.0–5  6 × Block`."""
    return "  ".join(_block_names(block))


def _block_names(block: Block) -> tuple[str, str]:
    """Which modules, and of what kind."""
    if len(block.paths) == 1:
        return module_words(block.path), block.class_name
    last = block.paths[-1].rpartition(".")[2]
    return f"{block.path}–{last}", f"{len(block.paths)} × {block.class_name or say('modules')}"


def _sum_words(phase: str, moves: list[Move]) -> str:
    hops, size = sum(move.count for move in moves), sum(move.bytes * move.count for move in moves)
    hooks = sum(move.count for move in moves if move.cause == "hook")
    facts = {"phase": phase, "hops": count_words(hops, "hop"), "size": format_bytes(size)}
    if hooks:
        return say("{phase}: {hops}, {size}, {hooks} of them by hooks of accelerate.", hooks=hooks, **facts)
    return say("{phase}: {hops}, {size}.", **facts)


def _draw_box(block: Block, row: int, column: int) -> Figure:
    left, right, top, bottom = column - _WIDE / 2, column + _WIDE / 2, row - 0.38, row + 0.38
    words = f"<b>{plotly_text(block_words(block))}</b><br>{plotly_text(str(block.device))}, {format_bytes(block.bytes)}"
    shape = draw_area([left, right, right, left, left], [top, top, bottom, bottom, top], device_hue(block.device), 0.3, words)
    shape["line"] = {"width": 1.5, "color": device_hue(block.device)}
    return shape | {"meta": {"path": block.path, "box": "block"}}


def _draw_title(device: str, column: int) -> Figure:
    place = {"x": column, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "captureevents": False}
    return place | {"text": f"<b>{plotly_text(device)}</b>", "font": {"size": 13}}


def _kind_lines(blocks: tuple[Block, ...], letters: int) -> list[str]:
    """Kind and bytes of each block where all have room for both, else the kinds, else the bytes; hover tells all."""
    parts = [(_block_names(block)[1], format_bytes(block.bytes)) for block in blocks]
    forms = [[f"{kind}  {size}" for kind, size in parts], [kind for kind, _ in parts], [size for _, size in parts]]
    return next((form for form in forms if max(map(len, form)) <= letters), forms[-1])


def _draw_name(block: Block, kind: str, row: int, column: int, letters: int) -> Figure:
    """Draw a name in its box: as much of the path's end as has room."""
    place = {"x": column, "y": row, "showarrow": False, "captureevents": False, "font": {"size": 11.5}}
    parts = _block_names(block)[0].split(".")
    paths = [".".join(parts[at:]) for at in range(len(parts))]
    cut = f"{paths[-1][: letters - 1].rstrip(' …')}…"
    name = next((path for path in paths if len(path) <= letters), cut)
    return place | {"text": f"{plotly_text(name)}<br>{plotly_text(kind)}"}


def _draw_ribbon(crossing: BlockCrossing, drawn: DeviceMap, *, back: bool = False) -> Figure:
    """Draw a ribbon from the side of one box to that of another, from above if it comes from outside; `back` turns it."""
    first, target = crossing.moves[0], drawn.blocks[crossing.target]
    start_device, shift = (first.target if back else first.source), (_BESIDE if drawn.back else 0.0) * (1 if back else -1)
    start = drawn.devices.index(start_device), (float(crossing.source) if crossing.source >= 0 else -0.85) + shift
    end = drawn.devices.index(target.device), float(crossing.target) + shift
    side = _WIDE / 2 if end[0] > start[0] else -_WIDE / 2 if end[0] < start[0] else 0.0
    x0, x1 = start[0] + (side if crossing.source >= 0 else 0.0), end[0] - side
    half = _ribbon_thickness(crossing.bytes, drawn) / 2
    along = [x0 + (x1 - x0) * t for t, _ in CURVE]
    middle = [start[1] + (end[1] - start[1]) * rise for _, rise in CURVE]
    y = [*(each - half for each in middle), *(each + half for each in reversed(middle))]
    hue = device_hue(start_device if back else target.device)
    shape = draw_area([*along, *reversed(along)], y, hue, 0.2 if back else 0.55, _crossing_words(crossing))
    if back:
        shape["fillpattern"] = {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": hue, "bgcolor": shape["fillcolor"]}
    ends = [crossing.target, crossing.source] if back else [crossing.source, crossing.target]
    return shape | {"meta": {"path": target.path, "bytes": crossing.bytes, "crossing": ends}}


def _ribbon_thickness(size: int, drawn: DeviceMap) -> float:
    """The thickness of a ribbon in rows, all to one scale; half of it where gradients come back beside."""
    most = max(each.bytes for each in (*drawn.crossings, *drawn.back))
    return (_THINNEST + (_THICKEST - _THINNEST) * size / most) / (2 if drawn.back else 1)


def _crossing_words(crossing: BlockCrossing) -> str:
    first = crossing.moves[0]
    hops, seconds = sum(move.count for move in crossing.moves), sum(move.seconds for move in crossing.moves)
    cost = ", " + say("{time} in the host", time=format_seconds(seconds)) if seconds else ""
    ends, size = plotly_text(f"{first.source} → {first.target}"), format_bytes(crossing.bytes)
    head = f"<b>{ends}</b> {size}, {count_words(hops, 'hop')}{cost}"
    return "<br>".join([head, *map(_move_words, crossing.moves[:_MOST_EXAMPLES])])


def _move_words(move: Move) -> str:
    by = say("hook of {module}", module=module_words(move.module)) if move.cause == "hook" else code_word(move.cause)
    return plotly_text(f"{tensor_words(move.dtype, move.shape)} {by} {site_words(move.site)}")
