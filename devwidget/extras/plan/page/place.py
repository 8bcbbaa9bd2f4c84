"""A layout as a page in the panel's design: the proposal and accelerate's, as columns, ribbons and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from devwidget.extras.plan.evidence.compared import name_fit
from devwidget.extras.plan.page.marks import GLYPHS, draw_glyph, draw_prose, draw_table
from devwidget.extras.plan.page.sheet import draw_document, draw_header, draw_output, draw_verdict
from devwidget.extras.plan.page.step import draw_heading, draw_map
from devwidget.extras.plan.records.answers import AutoProposal, Layout, PlacedGpu
from devwidget.extras.plan.views import propose_picture
from devwidget.extras.plan.words.plan import fit_words, fits_words
from devwidget.extras.plan.words.questions import auto_sentence, hop_words, rejected_rows
from devwidget.language.speaking import said, say
from devwidget.records.schema.record import presents
from devwidget.report.figures.devices import WIDTHS, draw_devices, picture_words
from devwidget.report.style.safe_text import Markup, html_element, join_html
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
    action = html_element("code", "layout.device_map", class_="dw-action")
    if is_live:
        action = html_element("button", say("Copy device map"), type="button", class_="dw-primary", **{"data-do": "copy"})
    beside = "" if layout.auto is None else auto_sentence_short(layout.auto)
    verdict = draw_verdict(layout.fit, layout_words(layout), spare_words(layout), beside, action)
    pictures = html_element("div", *_draw_pictures(layout), class_="dw-two dw-pictures")
    table = draw_table(list(_list_rows(layout)), right=range(1, 1 + len(layout.devices)), wide=2 + len(layout.devices))
    parts = header, verdict, pictures, table, *_draw_rest(layout)
    return html_element("section", *parts, class_="dw dw-panel dw-plan dw-place", **{"aria-label": say("layout")})


def auto_sentence_short(auto: AutoProposal) -> str:
    """Whether accelerate's map fits."""
    return say('accelerate\'s "auto" {answer}', answer=fits_words(auto.fits))


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
    return html_element("div", draw_heading(name, more), draw_devices(picture, WIDTHS[0], **looks))


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
    hops = hop_words(auto.hops, auto.crossing) if auto.places else ""
    if auto.places:
        told = ""
    else:
        told = say("its map splits inside a block")
    yield _draw_row(say('accelerate\'s "auto"'), auto.devices, hops, told or _over_words(auto.devices))


def _over_words(gpus: Sequence[PlacedGpu]) -> str:
    over = [
        say("{device} needs {over} more", device=gpu.device, over=format_bytes(gpu.on_card - gpu.capacity))
        for gpu in gpus
        if gpu.on_card > gpu.capacity
    ]
    return row_words(over)


def _draw_row(name: str, gpus: Sequence[PlacedGpu], hops: str, told: str) -> tuple[str, ...]:
    fits = {gpu.fit for gpu in gpus}
    fit = name_fit("does not fit" not in fits, "fits by less" in fits)
    label = join_html(draw_glyph(GLYPHS[fit], fit_words(fit)), " ", name)
    return (label, *map(_draw_taken, gpus), hops, told)


def _draw_taken(gpu: PlacedGpu) -> Markup:
    return html_element("span", format_bytes(gpu.on_card), class_="dw-over" if gpu.on_card > gpu.capacity else "")


def _draw_rest(layout: Layout) -> Iterator[Markup]:
    if layout.auto is not None and not layout.auto.places and not layout.auto.problem:
        yield html_element("p", draw_prose(auto_sentence(layout.auto)))
    for paths in layout.ties:
        yield html_element("p", say("tied: {paths}", paths=", ".join(paths)))
    yield draw_map(layout.device_map.items())
    if layout.rejected:
        rows = draw_table([(say("split"), say("why not")), *rejected_rows(layout)])
        yield html_element("details", html_element("summary", say("tried before")), rows)
