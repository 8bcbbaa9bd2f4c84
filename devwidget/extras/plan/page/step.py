"""The step of a plan: what each GPU holds at the peak, the course of the step, the loops around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.page.marks import (
    GLYPHS,
    Scale,
    draw_glyph,
    draw_keys,
    draw_percent,
    draw_prose,
    draw_table,
    list_ticks,
)
from devwidget.extras.plan.records.plan import DevicePlan, LoopPeak, Plan, StepPoint
from devwidget.extras.plan.words.plan import PARTS, fit_words, loop_words, map_rows, moment_words, part_hue, tips_words
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.report.style.safe_text import Markup, html_element, join_html
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import code_word, row_words

_ROOM = 1.02
"""Times the largest size on a track, so that what is drawn at its end is whole."""


def draw_step(plan: Plan) -> Markup:
    """All of it."""
    device = plan.tightest
    course = _draw_course(plan, device) if device.course else ""
    tables = html_element("div", join_html(*_draw_loops(plan)), join_html(*_draw_parts(plan)), class_="dw-two")
    return join_html(_draw_peak(plan), course, tables, *_draw_remarks(plan))


def draw_heading(words: str, more: str) -> Markup:
    """The heading of a part, and what it shows."""
    return html_element("h4", html_element("b", words), more)


def _draw_peak(plan: Plan) -> Markup:
    scale = Scale(_ROOM * max(max(each.capacity, each.on_card, each.on_card_band[1]) for each in plan.devices))
    against = say("compared with the given memory")
    names = [("", part_hue(part), said(name)) for part, name in PARTS.items()]
    if plan.card:
        against = say("compared with the memory that a program sees on the card")
        names += [("dw-cached", "", say("cached")), ("dw-context", "", say("CUDA's context"))]
    rows = [row for device in plan.devices for row in _draw_device(plan, device, scale)]
    rows += [html_element("b"), scale.draw_ticks(plan.tightest.capacity), html_element("b")]
    stretches = html_element("div", *rows, class_="dw-stretches")
    return join_html(draw_heading(say("At the peak"), against), draw_keys(names), stretches)


def _draw_device(plan: Plan, device: DevicePlan, scale: Scale) -> Iterator[Markup]:
    """The waterfall of one GPU: what is allocated by category, what is cached in addition, what CUDA takes."""
    name = str(device.device) if len(plan.devices) > 1 else say("allocated")
    allocated = list(_draw_categories(device, scale))
    if device.peak > device.capacity:
        allocated.append(scale.draw_stretch(device.capacity, device.peak, "dw-too-much"))
    yield from _draw_row(name, device.peak, [*allocated, scale.draw_wall(device.capacity)])
    if not device.reserved:
        return
    start, (least, most) = device.peak + device.cached, device.on_card_band
    cached = [scale.draw_stretch(device.peak, start, "dw-cached"), scale.draw_wall(device.capacity)]
    words = say("{size} cached between blocks", size=format_bytes(device.cached))
    yield from _draw_row(say("reserved"), device.reserved, [*cached, _draw_beside(scale, device.peak, start, words)])
    context = [scale.draw_stretch(start, device.on_card, "dw-context"), scale.draw_stretch(least, most, "dw-whisker")]
    facts = {"size": format_bytes(device.context), "least": format_bytes(least), "most": format_bytes(most)}
    words = say("{size} of context; may be {least} to {most}", **facts)
    beside = scale.draw_wall(device.capacity), _draw_beside(scale, min(start, least), max(device.on_card, most), words)
    yield from _draw_row(say("on the card"), device.on_card, [*context, *beside])


def _draw_row(name: str, size: int, track: Sequence[Markup]) -> Iterator[Markup]:
    yield html_element("b", name)
    yield html_element("span", *track, class_="dw-track")
    yield html_element("b", format_bytes(size), class_="dw-size")


def _draw_beside(scale: Scale, start: int, stop: int, words: str) -> Markup:
    """Words before what is drawn, or behind it where that has more room."""
    before = start > scale.reach / 2
    return scale.draw_words(start if before else stop, words, before=before)


def _draw_categories(device: DevicePlan, scale: Scale) -> Iterator[Markup]:
    start = 0
    for part, name in PARTS.items():
        size = getattr(device, part)
        if size:
            yield scale.draw_stretch(start, start + size, "", part_hue(part), f"{said(name)} {format_bytes(size)}")
        start += size


_STACK = "weights", "optimizer", "gradients", "activations"
"""From the bottom of the course: what stays longest first."""


def _draw_course(plan: Plan, device: DevicePlan) -> Markup:
    """What is allocated, from the first allocation of the step to the last."""
    points = device.course
    most = max(point.held for point in points)
    reach = max(1.12 * most, device.capacity if device.capacity < 2 * most else 0)
    lines, area = [*_draw_lines(device, reach)], _draw_areas(device.weights, points, reach)
    name = f"{device.device}, " if len(plan.devices) > 1 else ""
    heading = draw_heading(say("Along the step"), name + say("in the order of execution; what is allocated"))
    marks = _draw_peak_mark(plan, device, reach)
    return join_html(heading, _draw_spans(points), html_element("div", area, *lines, *marks, class_="dw-course"))


def _draw_spans(points: Sequence[StepPoint]) -> Markup:
    """The parts of the step above its course."""
    spans, at = [], 0
    for phase, group in groupby(points, lambda point: point.phase):
        count = len(list(group))
        place = f"left:{draw_percent(at / len(points))};width:{draw_percent(count / len(points))}"
        spans.append(html_element("span", code_word(phase), style=place, title=code_word(phase)))
        at += count
    return html_element("div", *spans, class_="dw-spans")


def _draw_lines(device: DevicePlan, reach: float) -> Iterator[Markup]:
    for size in list_ticks(reach):
        if size and (device.capacity > reach or abs(size - device.capacity) > 0.08 * reach):
            yield html_element("i", style=f"bottom:{draw_percent(size / reach)}")
            yield html_element("span", format_bytes(int(size)), style=f"bottom:{draw_percent(size / reach)}")
    if device.capacity <= reach:
        place = f"bottom:{draw_percent(device.capacity / reach)}"
        yield html_element("i", class_="dw-end", style=place)
        yield html_element("span", html_element("b", format_bytes(device.capacity)), style=place)


def _draw_areas(weights: int, points: Sequence[StepPoint], reach: float) -> Markup:
    """One area above the other, each as steps."""
    layers = [_stack_sizes(weights, point) for point in points]
    paths, below = [], [0.0] * len(points)
    for at, part in enumerate(_STACK):
        above = [low + layer[at] for low, layer in zip(below, layers, strict=True)]
        if any(high > low for low, high in zip(below, above, strict=True)):
            paths.append(
                html_element("path", d=_draw_outline(below, above, reach), fill="currentColor", style=f"color:{part_hue(part)}")
            )
        below = above
    view = {"viewBox": f"0 0 {len(points)} 1000", "preserveAspectRatio": "none", "shape-rendering": "crispEdges"}
    return html_element("svg", *paths, **view, **{"aria-hidden": "true"})


def _stack_sizes(weights: int, point: StepPoint) -> tuple[int, ...]:
    """Sizes in the order of the stack; what has no name is activations."""
    sizes, left = [], point.held
    for size in (weights, point.optimizer, point.gradients):
        sizes.append(min(size, left))
        left -= sizes[-1]
    return (*sizes, left)


def _draw_outline(below: Sequence[float], above: Sequence[float], reach: float) -> str:
    low, high = ([f"{1000 * (1 - size / reach):.0f}" for size in sizes] for sizes in (below, above))
    up = "".join(f"V{y}H{at + 1}" for at, y in enumerate(high))
    down = "".join(f"V{y}H{at}" for at, y in reversed(list(enumerate(low))))
    return f"M0 {low[0]}{up}{down}Z"


def _draw_peak_mark(plan: Plan, device: DevicePlan, reach: float) -> Iterator[Markup]:
    """The fullest moment of this step; the peak of all steps is described with its place."""
    held = [point.held for point in device.course]
    at = held.index(max(held))
    place = (at + 1) / len(held)
    side = f"left:{draw_percent(place)}" if place < 0.6 else f"right:{draw_percent(1 - place)}"
    if held[at] == device.peak:
        where = moment_words(plan, device.peak_at)
    else:
        where = code_word(device.course[at].phase)
    words = html_element("b", format_bytes(held[at])), draw_prose(f" {where}")
    yield html_element("span", *words, class_="dw-note", style=f"bottom:{draw_percent(min(held[at] / reach, 0.9))};{side}")


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


def _draw_loops(plan: Plan) -> Iterator[Markup]:
    yield draw_heading(say("Which loop?"), say("the peak depends on when the model output is freed"))
    head = (say("loop"), say("allocated"), "", say("the effect of the loop"))
    planned = LoopPeak(plan.loop.name, max(device.peak for device in plan.devices), plan.fits)
    label = join_html(html_element("b", planned.name), " ", say("planned"))
    _, *options = loop_words(plan.loop)
    rows = [_loop_row(planned, label, options), *(_loop_row(other, other.name) for other in plan.other_loops)]
    yield draw_table([head, *rows], right=(1,), wide=3)


def _loop_row(loop: LoopPeak, label: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    fit: Fit = "fits" if loop.fits else "does not fit"
    words = [said(_WHAT.get(loop.name, Message("a loop of yours")))]
    if options:
        words.insert(0, f"{row_words(options)}; ")
    if loop.name in _CODE:
        words += [" ", html_element("code", _CODE[loop.name])]
    return (label, format_bytes(loop.peak), draw_glyph(GLYPHS[fit], fit_words(fit)), join_html(*words))


def _draw_parts(plan: Plan) -> Iterator[Markup]:
    yield draw_heading(say("At the peak, in figures"), "")
    names = [said(name) for name in PARTS.values()]
    rows = [("", say("allocated"), *names, say("the peak is in"))]
    for device in plan.devices:
        sizes = (format_bytes(getattr(device, part)) for part in ("peak", *PARTS))
        rows.append((str(device.device), *sizes, draw_prose(moment_words(plan, device.peak_at))))
    yield draw_table(rows, right=range(1, 2 + len(names)), wide=2 + len(names))


def _draw_remarks(plan: Plan) -> Iterator[Markup]:
    for device in plan.devices:
        if device.tips_over is not None:
            yield html_element("p", html_element("span", draw_prose(tips_words(plan, device)), class_="dw-over"))
    if plan.device_map:
        yield draw_map(plan.device_map)


def draw_map(places: Iterable[tuple[str, object]]) -> Markup:
    """A device map, folded."""
    rows = [(say("module"), say("device")), *map_rows(places)]
    return html_element("details", html_element("summary", say("device map")), draw_table(rows))
