"""The step of a plan: what each GPU holds at the peak, the course of the step, the loops around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.page.marks import Scale, draw, draw_percent, list_ticks
from devwidget.extras.plan.records.plan import DevicePlan, LoopPeak, Plan, StepPoint
from devwidget.extras.plan.words.plan import (
    OTHERS,
    PARTS,
    fit_words,
    is_in_optimizer,
    loop_words,
    map_rows,
    moment_words,
    part_hue,
    part_sizes,
    tips_words,
)
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.report.style.safe_text import Markup, draw_prose, join_html
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import code_word, row_words

_Mark = tuple[str, str, str, str]
"""On a track: words or "" for a box, look, place, title."""
_Row = tuple[str, list[_Mark], str]
_ROOM = 1.02
"""Times the largest size on a track, so that what is drawn at its end is whole."""


def draw_step(plan: Plan) -> Markup:
    """All of it."""
    device = plan.tightest
    course = _draw_course(plan, device) if device.course else ""
    tables = draw("box", join_html(_draw_loops(plan), _draw_parts(plan)), "dw-two")
    return join_html(_draw_peak(plan), course, tables, *_draw_remarks(plan))


def _draw_peak(plan: Plan) -> Markup:
    scale = Scale(_ROOM * max(max(each.capacity, each.on_card, each.on_card_band[1]) for each in plan.devices))
    against = say("compared with the given memory")
    names = [("", part_hue(part), said(name)) for part, name in PARTS.items()]
    if "optimizer" in plan.phases:
        names.append(("", part_hue("others"), said(OTHERS)))
    if plan.card:
        against = say("compared with the memory that a program sees on the card")
        names += [("dw-cached", "", say("cached")), ("dw-context", "", say("CUDA's context"))]
    rows = [row for device in plan.devices for row in _list_rows(plan, device, scale)]
    stretches = draw("stretches", rows, scale, list(scale.list_ticks(plan.tightest.capacity)))
    return join_html(draw("heading", say("At the peak"), against), draw("keys", names), stretches)


def _list_rows(plan: Plan, device: DevicePlan, scale: Scale) -> Iterator[_Row]:
    """The waterfall of one GPU: what is allocated by category, what is cached in addition, what CUDA takes."""
    name = str(device.device) if len(plan.devices) > 1 else say("allocated")
    wall = "", "dw-wall", scale.at(device.capacity), ""
    allocated = list(_list_categories(device, scale))
    if device.peak > device.capacity:
        allocated.append(("", "dw-too-much", scale.place(device.capacity, device.peak), ""))
    yield name, [*allocated, wall], format_bytes(device.peak)
    if not device.reserved:
        return
    start, (least, most) = device.peak + device.cached, device.on_card_band
    words = say("{size} cached between blocks", size=format_bytes(device.cached))
    cached = "", "dw-cached", scale.place(device.peak, start), ""
    yield say("reserved"), [cached, wall, _place_words(scale, device.peak, start, words)], format_bytes(device.reserved)
    facts = {"size": format_bytes(device.context), "least": format_bytes(least), "most": format_bytes(most)}
    words = say("{size} of context; may be {least} to {most}", **facts)
    context, whisker = scale.place(start, device.on_card), scale.place(least, most)
    marks = [("", "dw-context", context, ""), ("", "dw-whisker", whisker, ""), wall]
    marks.append(_place_words(scale, min(start, least), max(device.on_card, most), words))
    yield say("on the card"), marks, format_bytes(device.on_card)


def _place_words(scale: Scale, start: int, stop: int, words: str) -> _Mark:
    """Words before what is drawn, or behind it where that has more room."""
    if start > scale.reach / 2:
        return words, "", f"right:{draw_percent(1 - start / scale.reach)}", ""
    return words, "", scale.at(stop), ""


def _list_categories(device: DevicePlan, scale: Scale) -> Iterator[_Mark]:
    start = 0
    for part, name in PARTS.items():
        size = getattr(device, part)
        hue = part_hue(part)
        if part == "activations" and is_in_optimizer(device.peak_at):
            name, hue = OTHERS, part_hue("others")
        if size:
            yield "", "", f"{scale.place(start, start + size)};background:{hue}", f"{said(name)} {format_bytes(size)}"
        start += size


_STACK = "weights", "optimizer", "gradients", "activations", "others"
"""From the bottom of the course: what stays longest first."""


def _draw_course(plan: Plan, device: DevicePlan) -> Markup:
    points = device.course
    most = max(point.held for point in points)
    reach = max(1.12 * most, device.capacity if device.capacity < 2 * most else 0)
    name = f"{device.device}, " if len(plan.devices) > 1 else ""
    heading = draw("heading", say("Along the step"), name + say("in the order of execution; what is allocated"))
    drawn = _list_areas(device.weights, points, reach), _list_lines(device, reach), _note_peak(plan, device, reach)
    return join_html(heading, draw("course", _list_spans(points), len(points), *drawn))


def _list_spans(points: Sequence[StepPoint]) -> Iterator[tuple[str, str]]:
    at = 0
    for phase, group in groupby(points, lambda point: point.phase):
        count = len(list(group))
        yield code_word(phase), f"left:{draw_percent(at / len(points))};width:{draw_percent(count / len(points))}"
        at += count


def _list_lines(device: DevicePlan, reach: float) -> Iterator[tuple[str, str, str]]:
    for size in list_ticks(reach):
        if size and (device.capacity > reach or abs(size - device.capacity) > 0.08 * reach):
            yield format_bytes(int(size)), f"bottom:{draw_percent(size / reach)}", ""
    if device.capacity <= reach:
        yield format_bytes(device.capacity), f"bottom:{draw_percent(device.capacity / reach)}", "dw-end"


def _list_areas(weights: int, points: Sequence[StepPoint], reach: float) -> Iterator[tuple[str, str]]:
    layers = [_stack_sizes(weights, point) for point in points]
    below = [0.0] * len(points)
    for at, part in enumerate(_STACK):
        above = [low + layer[at] for low, layer in zip(below, layers, strict=True)]
        if above != below:
            yield _draw_outline(below, above, reach), part_hue(part)
        below = above


def _stack_sizes(weights: int, point: StepPoint) -> tuple[int, ...]:
    """Sizes in the order of the stack; what has no name is activations until backward has ended."""
    sizes, left = [], point.held
    for size in (weights, point.optimizer, point.gradients):
        sizes.append(min(size, left))
        left -= sizes[-1]
    rest = (0, left) if is_in_optimizer(point) else (left, 0)
    return (*sizes, *rest)


def _draw_outline(below: Sequence[float], above: Sequence[float], reach: float) -> str:
    low, high = ([f"{1000 * (1 - size / reach):.0f}" for size in sizes] for sizes in (below, above))
    up = "".join(f"V{y}H{at + 1}" for at, y in enumerate(high))
    down = "".join(f"V{y}H{at}" for at, y in reversed(list(enumerate(low))))
    return f"M0 {low[0]}{up}{down}Z"


def _note_peak(plan: Plan, device: DevicePlan, reach: float) -> tuple[str, Markup, str]:
    """The fullest moment of this step; the peak of all steps is described with its place."""
    held = [point.held for point in device.course]
    at = held.index(max(held))
    place = (at + 1) / len(held)
    side, where = f"right:{draw_percent(1 - place)}", code_word(device.course[at].phase)
    if place < 0.6:
        side = f"left:{draw_percent(place)}"
    if held[at] == device.peak:
        where = moment_words(plan, device.peak_at)
    return format_bytes(held[at]), draw_prose(where), f"bottom:{draw_percent(min(held[at] / reach, 0.9))};{side}"


_WHAT = {
    "step": Message("the model output is freed when the step ends, as in a function that runs the step"),
    "plain": Message("the last model output is kept until the next forward ends, as in a loop without a function"),
    "trainer": Message("the model output is freed before backward, as in transformers' Trainer"),
}
_CODE = {
    "step": "def step(batch): ...",
    "plain": "out = model(**batch); out.loss.backward()",
    "trainer": "loss = model(**batch).loss",
}


def _draw_loops(plan: Plan) -> Markup:
    heading = draw("heading", say("Which loop?"), say("the peak depends on when the model output is freed"))
    head = (say("loop"), say("allocated"), "", say("the effect of the loop"))
    planned = LoopPeak(plan.loop.name, max(device.peak for device in plan.devices), plan.fits)
    label = join_html(draw("strong", planned.name), " ", say("planned"))
    _, *options = loop_words(plan.loop)
    rows = [_loop_row(planned, label, options), *(_loop_row(other, other.name) for other in plan.other_loops)]
    return join_html(heading, draw("table", [head, *rows], (1,), 3))


def _loop_row(loop: LoopPeak, label: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    fit: Fit = "fits" if loop.fits else "does not fit"
    words = [said(_WHAT.get(loop.name, Message("a loop of yours")))]
    if options:
        words.insert(0, f"{row_words(options)}; ")
    if loop.name in _CODE:
        words += [" ", draw("code", _CODE[loop.name], "")]
    return (label, format_bytes(loop.peak), draw("glyph", fit, fit_words(fit)), join_html(*words))


def _draw_parts(plan: Plan) -> Markup:
    names = [said(name) for name in PARTS.values()]
    rows = [("", say("allocated"), *names, say("the peak is in"))]
    for device in plan.devices:
        sizes = [format_bytes(device.peak), *part_sizes(device)]
        rows.append((str(device.device), *sizes, draw_prose(moment_words(plan, device.peak_at))))
    wide = 2 + len(names)
    return join_html(draw("heading", say("At the peak, in figures"), ""), draw("table", rows, range(1, wide), wide))


def _draw_remarks(plan: Plan) -> Iterator[Markup]:
    for device in plan.devices:
        if device.tips_over is not None:
            yield draw("paragraph", draw("span", draw_prose(tips_words(plan, device)), "dw-over"))
    if plan.device_map:
        yield draw_map(plan.device_map)


def draw_map(places: Iterable[tuple[str, object]]) -> Markup:
    """A device map, folded."""
    rows = [(say("module"), say("device")), *map_rows(places)]
    return draw("folded", say("device map"), draw("table", rows))
