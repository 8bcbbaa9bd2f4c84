"""A pipeline's schedule as text: a line for each rank, a column for each unit of time."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import say
from devwidget.records.ranks.pipeline import Pipeline, PipelineAction
from devwidget.records.schema.record import presents
from devwidget.report.style.code_words import code_word
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted
from devwidget.report.style.words import row_words

LETTERS = {"forward": "F", "backward": "B", "input gradient": "I", "weight gradient": "W", "forward and backward": "FB"}


@presents("text", Pipeline)
def pipeline_text(pipeline: Pipeline) -> str:
    """Who computes what when."""
    return text_of(_lines(pipeline))


def _lines(pipeline: Pipeline) -> Iterator[str]:
    yield pipeline_headline(pipeline)
    yield from columns(
        [(say("rank {number}", number=at), *_cells(pipeline, actions)) for at, actions in enumerate(pipeline.ranks)],
        indent="  ",
    )
    yield f"  {pipeline_key(pipeline)}"


def pipeline_headline(pipeline: Pipeline) -> str:
    """`Schedule1F1B: 4 ranks, 4 stages, 8 microbatches; ranks wait 27 % of the time`."""
    return say(
        "{schedule}: {ranks}, {stages} stages, {microbatches} microbatches; ranks wait {idle} % of the time",
        schedule=pipeline.schedule,
        ranks=counted(len(pipeline.ranks), "rank"),
        stages=pipeline.stages,
        microbatches=pipeline.microbatches,
        idle=f"{pipeline.idle:.0%}".rstrip("%"),
    )


def pipeline_key(pipeline: Pipeline) -> str:
    """What the letters mean."""
    used = dict.fromkeys(action.kind for actions in pipeline.ranks for action in actions)
    letters = row_words(f"{LETTERS[kind]} {code_word(kind)}" for kind in used)
    if pipeline.stages > len(pipeline.ranks):
        return say("{letters}; the number is that of the microbatch, after it its stage", letters=letters)
    return say("{letters}; the number is that of the microbatch", letters=letters)


def action_words(pipeline: Pipeline, action: PipelineAction) -> str:
    """`F3`, with its stage where a rank has several: `F3.4`."""
    stage = f".{action.stage}" if pipeline.stages > len(pipeline.ranks) else ""
    return f"{LETTERS[action.kind]}{action.microbatch}{stage}"


def _cells(pipeline: Pipeline, actions: tuple[PipelineAction, ...]) -> list[str]:
    """A dot for each unit in which a rank waits, dashes while it goes on."""
    cells = ["."] * pipeline.width
    for action in actions:
        cells[action.start : action.start + action.width] = [action_words(pipeline, action), *["-"] * (action.width - 1)]
    widest = max((len(action_words(pipeline, action)) for row in pipeline.ranks for action in row), default=1)
    return [cell.ljust(widest) for cell in cells]
