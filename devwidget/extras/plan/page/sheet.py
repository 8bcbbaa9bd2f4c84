"""What the pages of a plan and of a layout have in common: the document and the header with its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from devwidget.extras.plan.page.marks import draw, draw_percent
from devwidget.extras.plan.records.answers import PlacedGpu
from devwidget.extras.plan.records.plan import DevicePlan
from devwidget.language.speaking import language, say
from devwidget.report.page.assets import files_of_extra, static_text
from devwidget.report.style.palette import device_hue
from devwidget.report.style.safe_text import Markup
from devwidget.report.style.units import count_words, format_bytes

STYLES = "base.css", "panel.css", *files_of_extra("plan", "plan.css")


def draw_output(page: Markup) -> Markup:
    """A page as an output of a notebook, with its style."""
    styles = "\n".join(map(static_text, STYLES))
    return Markup(f"<style>{styles}</style>{page}")


def draw_document(title: str, page: Markup) -> str:
    """A page as a self-contained file, in the colour scheme of the reader."""
    return f"{draw('document', title, Markup(static_text('page.css')), draw_output(page), language())}\n"


def draw_header(model: str, facts: Iterable[str], gpus: Sequence[PlacedGpu | DevicePlan]) -> Markup:
    """The model, what is known of the step, and how full each GPU is."""
    count = say("1 GPU that is not here")
    if len(gpus) > 1:
        count = say("{gpus} that are not here", gpus=count_words(len(gpus), "GPU"))
    return draw("header", model, [*facts, count], [_describe_gpu(gpu) for gpu in gpus])


def _describe_gpu(gpu: PlacedGpu | DevicePlan) -> dict[str, object]:
    share = gpu.on_card / max(gpu.capacity, 1)
    sizes = {"size": format_bytes(gpu.on_card), "capacity": format_bytes(gpu.capacity)}
    return {
        "device": str(gpu.device),
        "hue": device_hue(gpu.device),
        "share": share,
        "width": f"width:{draw_percent(min(share, 1))}",
        "title": say("{device}: {size} of {capacity}", device=gpu.device, **sizes),
        "words": say("{size} of {capacity}", **sizes),
    }
