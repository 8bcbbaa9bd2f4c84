"""A layout as a page in the panel's design: the proposal and accelerate's, as columns, ribbons and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from devwidget.extras.plan.evidence.compared import name_fit
from devwidget.extras.plan.page.marks import draw
from devwidget.extras.plan.page.sheet import draw_document, draw_header, draw_output
from devwidget.extras.plan.page.step import draw_map
from devwidget.extras.plan.records.answers import Layout, PlacedGpu
from devwidget.extras.plan.views import propose_picture
from devwidget.extras.plan.words.plan import fit_words, fits_words
from devwidget.extras.plan.words.questions import auto_sentence, hop_words, rejected_rows
from devwidget.language.speaking import said, say
from devwidget.records.schema.record import presents
from devwidget.report.figures.devices import WIDTHS, draw_devices, picture_words
from devwidget.report.style.safe_text import Markup, draw_prose, join_html
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import row_words
from devwidget.views.placement import PlacementTable


@presents("notebook", Layout)
def layout_in_notebook(layout: Layout) -> Markup:
    """The page as an output, with its style."""
    return draw_output(draw_layout(layout))


@presents("html", Layout)
def layout_page(layout: Layout) -> str:
    """The page as a self-contained file."""
    return draw_document(f"{layout.model}: {fits_words(layout.fits)}", draw_layout(layout))


def draw_layout(layout: Layout, is_live: bool = False) -> Markup:
    """Header, verdict, both pictures, the GPUs in figures, and what was tried before; a live one has a button."""
    header = draw_header(layout.model, [say("{count} blocks", count=len(layout.blocks))], layout.devices)
    action = draw("code", "layout.device_map")
    if is_live:
        action = draw("button", say("Copy device map"), "dw-primary", "copy", repr(layout.device_map))
    beside = ""
    if layout.auto is not None:
        beside = say('accelerate\'s "auto" {answer}', answer=fits_words(layout.auto.fits))
    verdict = draw("verdict", layout.fit, layout_words(layout), spare_words(layout), beside, action)
    pictures = draw("box", join_html(*_draw_pictures(layout)), "dw-two dw-pictures")
    wide = 2 + len(layout.devices)
    table = draw("table", list(_list_rows(layout)), range(1, wide - 1), wide)
    return draw("layout", join_html(header, verdict, pictures, table, *_draw_rest(layout)))


def layout_words(layout: Layout) -> str:
    """`Fits over 2 GPUs, 2 hops in a forward:`."""
    gpus = count_words(len(layout.devices), "GPU")
    if not layout.fits:
        return say("No tried split over {gpus} fits:", gpus=gpus)
    used = len({block.device for block in layout.blocks})
    facts = {"gpus": gpus, "used": used, "hops": hop_words(layout.hops, layout.crossing)}
    if used < len(layout.devices):
        return say("Fits on {used} of {gpus}, {hops} in a forward:", **facts)
    return say("Fits over {gpus}, {hops} in a forward:", **facts)


def spare_words(layout: Layout) -> str:
    """What the fullest GPU has left, or how much is too much."""
    gpu = layout.tightest
    facts = {
        "device": gpu.device,
        "size": format_bytes(abs(gpu.capacity - gpu.on_card)),
        "capacity": format_bytes(gpu.capacity),
    }
    if not layout.fits:
        return say("this one needs least, {size} more than {device} has", **facts)
    if gpu.is_close:
        return say("{device} has {size} to spare, less than the error margin", **facts)
    return say("{device} has {size} of {capacity} to spare", **facts)


def _draw_pictures(layout: Layout) -> Iterator[Markup]:
    more = say("from one step without values; a GPU is filled up to its peak")
    yield _draw_picture(say("What is proposed"), more, layout)
    if layout.auto is not None and layout.auto.places:
        blocks = tuple(replace(block, device=place) for block, place in zip(layout.blocks, layout.auto.places, strict=True))
        auto = replace(layout, blocks=blocks, devices=layout.auto.devices)
        yield _draw_picture(say('accelerate\'s "auto"'), say("from the weights alone"), auto)


def _draw_picture(name: str, more: str, layout: Layout) -> Markup:
    picture = propose_picture(layout, PlacementTable())
    looks = {"role": "img", "aria-label": picture_words(picture), "class": "dw-columns"}
    return draw("box", join_html(draw("heading", name, more), draw_devices(picture, WIDTHS[0], **looks)))


def _list_rows(layout: Layout) -> Iterator[Sequence[str]]:
    heads = (say("{device} of {capacity}", device=gpu.device, capacity=format_bytes(gpu.capacity)) for gpu in layout.devices)
    yield "", *heads, say("in a forward"), ""
    yield _draw_row(say("What is proposed"), layout.devices, hop_words(layout.hops, layout.crossing), spare_words(layout))
    auto = layout.auto
    if auto is None:
        return
    if auto.problem:
        yield say('accelerate\'s "auto"'), *("" for _ in layout.devices), "", said(auto.problem)
        return
    hops, words = "", say("its map splits inside a block")
    if auto.places:
        hops, words = hop_words(auto.hops, auto.crossing), _over_words(auto.devices)
    yield _draw_row(say('accelerate\'s "auto"'), auto.devices, hops, words)


def _over_words(gpus: Sequence[PlacedGpu]) -> str:
    over = {gpu.device: gpu.on_card - gpu.capacity for gpu in gpus if gpu.on_card > gpu.capacity}
    return row_words(say("{device} needs {over} more", device=gpu, over=format_bytes(size)) for gpu, size in over.items())


def _draw_row(name: str, gpus: Sequence[PlacedGpu], hops: str, told: str) -> tuple[str, ...]:
    fits = {gpu.fit for gpu in gpus}
    fit = name_fit("does not fit" not in fits, "fits by less" in fits)
    label = join_html(draw("glyph", fit, fit_words(fit)), " ", name)
    taken = (draw("span", format_bytes(gpu.on_card), "dw-over" if gpu.on_card > gpu.capacity else "") for gpu in gpus)
    return (label, *taken, hops, told)


def _draw_rest(layout: Layout) -> Iterator[Markup]:
    if layout.auto is not None and not layout.auto.places and not layout.auto.problem:
        yield draw("paragraph", draw_prose(auto_sentence(layout.auto)))
    for paths in layout.ties:
        yield draw("paragraph", say("tied: {paths}", paths=", ".join(paths)))
    yield draw_map(layout.device_map.items())
    if layout.rejected:
        yield draw("folded", say("tried before"), draw("table", [(say("split"), say("why not")), *rejected_rows(layout)]))
