"""The schedule of a pipeline: who computes what when."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import say
from devwidget.records.ranks.parallel_plan import ActionKind, Pipeline, PipelineAction
from devwidget.report.page.draw_page import shows
from devwidget.report.parts import Part, Schedule, Sentence, Slot
from devwidget.report.style.units import count_words
from devwidget.report.style.words import code_word, row_words

_KINDS: dict[ActionKind, tuple[str, str]] = {
    "forward": ("F", "forward"),
    "backward": ("B", "backward"),
    "input gradient": ("I", "input"),
    "weight gradient": ("W", "weight"),
    "forward and backward": ("FB", "both"),
}
"""Kind of an action -> its letter, and how a page draws it."""


@shows(Pipeline)
def pipeline_parts(pipeline: Pipeline) -> Iterator[Part]:
    """`Schedule1F1B: 4 ranks, 4 stages, 8 microbatches; ranks wait 27 % of the time`, then a row for each rank."""
    told = say(
        "{schedule}: {ranks}, {stages} stages, {microbatches} microbatches; ranks wait {idle} % of the time",
        schedule=pipeline.schedule,
        ranks=count_words(len(pipeline.ranks), "rank"),
        stages=pipeline.stages,
        microbatches=pipeline.microbatches,
        idle=f"{pipeline.idle:.0%}".rstrip("%"),
    )
    yield Sentence(told, "verdict")
    names = (say("rank {number}", number=at) for at in range(len(pipeline.ranks)))
    slots = (tuple(_make_slot(pipeline, action) for action in actions) for actions in pipeline.ranks)
    yield Schedule(tuple(zip(names, slots, strict=True)), pipeline.width)
    yield Sentence(f"  {_key_words(pipeline)}")


def _key_words(pipeline: Pipeline) -> str:
    """What the letters mean."""
    used = dict.fromkeys(action.kind for actions in pipeline.ranks for action in actions)
    letters = row_words(f"{_KINDS[kind][0]} {code_word(kind)}" for kind in used)
    if pipeline.stages > len(pipeline.ranks):
        return say("{letters}; the number is that of the microbatch, after it its stage", letters=letters)
    return say("{letters}; the number is that of the microbatch", letters=letters)


def _make_slot(pipeline: Pipeline, action: PipelineAction) -> Slot:
    """`F3`, with its stage where a rank has several: `F3.4`."""
    letter, look = _KINDS[action.kind]
    stage = f".{action.stage}" if pipeline.stages > len(pipeline.ranks) else ""
    facts = {"kind": code_word(action.kind), "microbatch": action.microbatch, "stage": action.stage}
    title = say("{kind} of microbatch {microbatch} in stage {stage}", **facts)
    return Slot(f"{letter}{action.microbatch}{stage}", action.start, action.width, look, title)
