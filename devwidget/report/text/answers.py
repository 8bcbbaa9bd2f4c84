"""Answers to questions about a plan as text: one sentence, then a table; and the schedule of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from devwidget.language.speaking import said, say
from devwidget.records.answers import Changes, Generation, LargestBatch, Layout, PlannedChange
from devwidget.records.ranks.parallel_plan import Pipeline, PipelineAction
from devwidget.records.schema.record import presents
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import align_columns, code_word, row_words
from devwidget.report.text.plan_text import fits_words

Rows = list[tuple[str, ...]]


def what_if_sentence(answer: LargestBatch | Changes) -> str:
    """The answer."""
    if isinstance(answer, LargestBatch):
        return _largest_sentence(answer)
    cheapest = answer.cheapest
    told = say("no change alone makes it fit")
    if cheapest is not None:
        told = say("the cheapest change that fits: {change}", change=said(cheapest.what))
    size = format_bytes(answer.on_card)
    return say("{model}: {told} · {size} without a change", model=answer.model, told=told, size=size)


def _largest_sentence(answer: LargestBatch) -> str:
    facts = {"model": answer.model, "taken": format_bytes(answer.on_card), "capacity": format_bytes(answer.capacity)}
    if not answer.size:
        return say("{model}: not even one sample fits, it takes {taken} of {capacity}", **facts)
    return say("{model}: a batch of {size} fits, {taken} of {capacity}, and a larger one does not", size=answer.size, **facts)


def what_if_rows(answer: LargestBatch | Changes) -> Rows:
    """The plans that were run, under a heading."""
    if isinstance(answer, Changes):
        head = (say("change"), say("on the card"), say("saved"), "", say("what it costs"), say("what to write"))
        return [head, *(_change_row(change) for change in answer.changes)]
    ordered = sorted(answer.runs, key=lambda run: run.size)
    planned = [(str(run.size), format_bytes(run.on_card), fits_words(run.fits)) for run in ordered]
    return [(say("batch"), say("on the card"), ""), *planned]


def _change_row(change: PlannedChange) -> tuple[str, ...]:
    if change.problem:
        return (said(change.what), "", "", said(change.problem), "", change.code)
    sign = "-" if change.saved < 0 else ""
    sizes = format_bytes(change.on_card), sign + format_bytes(abs(change.saved))
    return (said(change.what), *sizes, fits_words(change.fits), said(change.cost), change.code)


@presents("text", LargestBatch)
@presents("text", Changes)
def what_if_text(answer: LargestBatch | Changes) -> str:
    """The sentence and the table."""
    return text_of(_what_if_lines(answer))


def _what_if_lines(answer: LargestBatch | Changes) -> Iterator[str]:
    yield what_if_sentence(answer)
    table = what_if_rows(answer)
    yield from align_columns(table, right=(1, 2) if isinstance(answer, Changes) else (0, 1), indent="  ")
    if isinstance(answer, LargestBatch):
        yield say("{plans} run", plans=count_words(len(table) - 1, "plan"))


@presents("text", Generation)
def generation_text(generation: Generation) -> str:
    """What writing on takes."""
    return text_of(_generation_lines(generation))


def _generation_lines(generation: Generation) -> Iterator[str]:
    yield generation_sentence(generation)
    yield from align_columns(generation_rows(generation), right=range(5), indent="  ")
    yield _logits_words(generation.logits)
    size = format_bytes(round(generation.bytes_per_token))
    if generation.longest:
        yield say(
            "the cache grows by {size} for each token of the batch, and a GPU is full at {longest} tokens",
            size=size,
            longest=f"{generation.longest:,}",
        )
    else:
        yield say("the cache grows by {size} for each token of the batch", size=size)


def _logits_words(positions: int) -> str:
    if positions == 1:
        return say("of the prompt the last position alone has logits, as `generate` asks for them")
    if positions:
        return say("of the prompt {count} positions have logits", count=positions)
    return say("every position of the prompt has logits")


def generation_sentence(generation: Generation) -> str:
    """The answer."""
    return say(
        "{model}: {tokens} after {prompt} {answer} · {taken} of {capacity}",
        model=generation.model,
        tokens=count_words(generation.new_tokens, "token"),
        prompt=f"{generation.prompt:,}",
        answer=fits_words(generation.fits),
        taken=format_bytes(generation.taken),
        capacity=format_bytes(generation.capacity),
    )


def generation_rows(generation: Generation) -> list[tuple[str, ...]]:
    """The lengths, under a heading."""
    on_card = (say("reserved"),) if generation.reserved else ()
    lengths = [
        (f"{at.length:,}", *map(format_bytes, (at.cache, at.prefill, at.decode, at.decode_reserved)[: 3 + len(on_card)]))
        for at in generation.runs
    ]
    return [(say("tokens"), say("cache"), say("reading them"), say("one more"), *on_card), *lengths]


@presents("text", Layout)
def layout_text(layout: Layout) -> str:
    """Where the blocks of a model go."""
    return text_of(_layout_lines(layout))


def _layout_lines(layout: Layout) -> Iterator[str]:
    yield layout_sentence(layout)
    yield from align_columns(layout_rows(layout), right=(1, 2, 3, 4), indent="  ")
    yield from (say("tied: {paths}", paths=", ".join(paths)) for paths in layout.ties)
    if layout.rejected:
        yield say("tried before")
        yield from align_columns([(said(each.what), said(each.why)) for each in layout.rejected], indent="  ")


def layout_sentence(layout: Layout) -> str:
    """The answer."""
    return say(
        "Layout: {model} over {gpus}: {answer} · {moved} in a forward",
        model=layout.model,
        gpus=count_words(len(layout.devices), "GPU"),
        answer=say("fits") if layout.fits else say("fits on no split that was tried; this one needs least"),
        moved=f"{count_words(layout.hops, 'hop')}, {format_bytes(layout.crossing)}" if layout.hops else say("no hops"),
    )


def layout_rows(layout: Layout) -> Rows:
    """The GPUs, under a heading."""
    rows: Rows = [("", say("taken"), say("capacity"), say("weights"), say("kept"), say("blocks"))]
    for gpu in layout.devices:
        mine = [block for block in layout.blocks if block.device == gpu.device]
        sizes = gpu.on_card, gpu.capacity, sum(block.weights for block in mine), sum(block.kept for block in mine)
        rows.append((str(gpu.device), *map(format_bytes, sizes), _block_runs(layout, gpu.device)))
    return rows


def _block_runs(layout: Layout, device: object) -> str:
    """Paths of blocks that run one after the other, the first and the last of each run."""
    runs = [[block.path for block in group] for at, group in groupby(layout.blocks, lambda block: block.device) if at == device]
    return ", ".join((run[0] or say("the whole model")) + (f" ... {run[-1]}" if len(run) > 1 else "") for run in runs)


LETTERS = {"forward": "F", "backward": "B", "input gradient": "I", "weight gradient": "W", "forward and backward": "FB"}


@presents("text", Pipeline)
def pipeline_text(pipeline: Pipeline) -> str:
    """Who computes what when."""
    return text_of(_pipeline_lines(pipeline))


def _pipeline_lines(pipeline: Pipeline) -> Iterator[str]:
    yield pipeline_headline(pipeline)
    yield from align_columns(
        [(say("rank {number}", number=at), *_pipeline_cells(pipeline, actions)) for at, actions in enumerate(pipeline.ranks)],
        indent="  ",
    )
    yield f"  {pipeline_key(pipeline)}"


def pipeline_headline(pipeline: Pipeline) -> str:
    """`Schedule1F1B: 4 ranks, 4 stages, 8 microbatches; ranks wait 27 % of the time`."""
    return say(
        "{schedule}: {ranks}, {stages} stages, {microbatches} microbatches; ranks wait {idle} % of the time",
        schedule=pipeline.schedule,
        ranks=count_words(len(pipeline.ranks), "rank"),
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


def _pipeline_cells(pipeline: Pipeline, actions: tuple[PipelineAction, ...]) -> list[str]:
    """A dot for each unit in which a rank waits, dashes while it goes on."""
    cells = ["."] * pipeline.width
    for action in actions:
        cells[action.start : action.start + action.width] = [action_words(pipeline, action), *["-"] * (action.width - 1)]
    widest = max((len(action_words(pipeline, action)) for row in pipeline.ranks for action in row), default=1)
    return [cell.ljust(widest) for cell in cells]
