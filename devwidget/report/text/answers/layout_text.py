"""A layout as text: the answer, the GPUs, the device map in short, and what was rejected."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from devwidget.language.speaking import said, say
from devwidget.records.answers.layout import Layout
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes

Rows = list[tuple[str, ...]]


@presents("text", Layout)
def layout_text(layout: Layout) -> str:
    """Where the blocks of a model go."""
    return text_of(_lines(layout))


def _lines(layout: Layout) -> Iterator[str]:
    yield layout_sentence(layout)
    yield from columns(layout_rows(layout), right=(1, 2, 3, 4), indent="  ")
    yield from (say("tied: {paths}", paths=", ".join(paths)) for paths in layout.ties)
    if layout.rejected:
        yield say("tried before")
        yield from columns([(said(each.what), said(each.why)) for each in layout.rejected], indent="  ")


def layout_sentence(layout: Layout) -> str:
    """The answer."""
    return say(
        "Layout: {model} over {gpus}: {answer} · {moved} in a forward",
        model=layout.model,
        gpus=counted(len(layout.devices), "GPU"),
        answer=say("fits") if layout.fits else say("fits on no split that was tried; this one needs least"),
        moved=f"{counted(layout.hops, 'hop')}, {format_bytes(layout.crossing)}" if layout.hops else say("no hops"),
    )


def layout_rows(layout: Layout) -> Rows:
    """The GPUs, under a heading."""
    rows: Rows = [("", say("taken"), say("capacity"), say("weights"), say("kept"), say("blocks"))]
    for gpu in layout.devices:
        mine = [block for block in layout.blocks if block.device == gpu.device]
        sizes = gpu.on_card, gpu.capacity, sum(block.weights for block in mine), sum(block.kept for block in mine)
        rows.append((str(gpu.device), *map(format_bytes, sizes), _runs(layout, gpu.device)))
    return rows


def _runs(layout: Layout, device: object) -> str:
    """Paths of blocks that run one after the other, the first and the last of each run."""
    runs = [[block.path for block in group] for at, group in groupby(layout.blocks, lambda block: block.device) if at == device]
    return ", ".join((run[0] or say("the whole model")) + (f" ... {run[-1]}" if len(run) > 1 else "") for run in runs)
