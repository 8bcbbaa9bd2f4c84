"""What was asked of a plan, drawn for its page: the ladder of changes, sizes, cards, generations."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.page.marks import Scale, draw, draw_ladder, draw_rung, scale_of
from devwidget.extras.plan.records.answers import (
    CardRow,
    Changes,
    Fitted,
    Generation,
    LargestBatch,
    OnCards,
    Room,
    Tried,
    find_first,
)
from devwidget.extras.plan.words.plan import fit_words
from devwidget.extras.plan.words.questions import (
    card_words,
    change_cost,
    generation_sentence,
    generation_words,
    largest_sentence,
    order_by_size,
    smallest_words,
)
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.report.style.safe_text import Markup, draw_prose, join_html
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import row_words

_GROUPS: dict[Fit, tuple[str, str]] = {
    "fits": (Message("Fit"), Message("by more than the error margin, the cheapest first")),
    "fits by less": (Message("Fit closely"), Message("within the error margin of the estimate: try before you rely on it")),
    "does not fit": (Message("Do not fit"), Message("what saves most first")),
}
"""Answer -> the heading of the changes that have it."""


def draw_changes(changes: Changes) -> Markup:
    """Three lists under one wall: what fits, what fits by less than plans were off, what does not."""
    run = [change for change in changes.tried if not change.problem]
    scale = scale_of([changes.without, *(change.room for change in run)])
    without = format_bytes(changes.on_card)
    more = say("each line is a plan that was run; {size} without a change", size=without)
    heading = draw("heading", say("What would make it fit"), more)
    rungs = list[Markup]()
    for fit, (name, more) in _GROUPS.items():
        group = [change for change in run if change.fit == fit]
        if group:
            rungs.append(draw("remark", said(name), f" {said(more)}", "dw-group"))
        for change in group:
            words = join_html(said(change.what), draw("code", change.code, "") if change.code else "")
            rungs.append(draw_rung(scale, change.room, words, change_cost(change), change is changes.cheapest))
    wall = format_bytes(changes.without.capacity)
    ladder = draw_ladder(say("change"), wall, rungs, scale, say("what it costs"))
    return join_html(heading, ladder, *(_draw_failed(change.what, change.problem) for change in changes.tried))


def _draw_failed(what: str, problem: str) -> Markup:
    if problem:
        return draw("remark", said(what), f": {said(problem)}")
    return Markup("")


def draw_batches(batch: LargestBatch) -> Markup:
    """The batches that were planned for the largest."""
    scale = scale_of(run.room for run in batch.tried)
    marks = {
        batch.size: say("the largest"),
        batch.safe_size: say("the largest that fits by more than the error margin"),
        0: "",
    }
    rungs = []
    for run in order_by_size(batch):
        size = run.setting.batch
        words = count_words(size, "sample")
        rungs.append(draw_rung(scale, run.room, words, marks.get(size, ""), size == batch.safe_size))
    heading = draw("heading", say("The largest batch"), largest_sentence(batch))
    return join_html(heading, draw_ladder(say("batch"), format_bytes(batch.capacity), rungs, scale))


def draw_sizes(fitted: Fitted) -> Markup:
    """Batch upwards, length to the right: what the fullest GPU takes, each cell a plan that was run."""
    wide, rows = len(fitted.lengths), []
    for row in reversed(range(len(fitted.batches))):
        cells = [_describe_size(fitted, at) for at in range(row * wide, (row + 1) * wide)]
        rows.append((f"{fitted.batches[row]:,}", cells))
    more = say("samples upwards, length to the right; each cell is a plan that was run")
    grid = draw("sizes", rows, [f"{length:,}" if length else "" for length in fitted.lengths])
    return join_html(draw("heading", say("Batch × length"), more), draw("keys", _list_size_keys(fitted)), grid)


_SIZE_LOOKS: dict[Fit, str] = {"fits": "", "fits by less": "dw-size-close", "does not fit": "dw-size-over"}


def _list_size_keys(fitted: Fitted) -> Iterator[tuple[str, str, str]]:
    seen = {each.fit for each in fitted.tried}
    names = say("fits"), say("fits, but within the error margin of the estimate"), say("does not fit")
    for fit, name in zip(_SIZE_LOOKS, names, strict=True):
        if fit in seen:
            yield _SIZE_LOOKS[fit] or "dw-size-fits", "", name
    if len(seen) > 1 and "does not fit" in seen:
        yield "dw-key-end", "", say("the end of what fits")
    if {"fits", "fits by less"} <= seen:
        yield "dw-key-safe", "", say("the end of what fits by more than the error margin")


def _describe_size(fitted: Fitted, at: int) -> tuple[str, str, str]:
    cell, wide = fitted.tried[at], len(fitted.lengths)
    looks = [_SIZE_LOOKS[cell.fit]]
    if at + wide < len(fitted.tried):
        looks.append(_find_line(cell.fit, fitted.tried[at + wide].fit, "above"))
    if (at + 1) % wide:
        looks.append(_find_line(cell.fit, fitted.tried[at + 1].fit, "beside"))
    if (cell.setting.batch, cell.setting.length) == fitted.asked:
        looks.append("dw-asked-size")
    return " ".join(filter(None, looks)), format_bytes(cell.on_card), fit_words(cell.fit)


def _find_line(fit: Fit, following: Fit, side: str) -> str:
    """The look of the line between two sizes: solid where one of them does not fit, dashed where one fits by less."""
    if fit == following:
        return ""
    if "does not fit" in (fit, following):
        return f"dw-end-{side}"
    return f"dw-safe-{side}"


_OWN_CARD = Scale(1.25)
"""Of a bar that is of its own card."""


def draw_cards(answer: OnCards, step: str) -> Markup:
    """Each card with how full it is: a bar is of its own card."""
    if answer.rows:
        return _draw_ways(answer, step)
    smallest, rungs = find_first(answer.tried), []
    for tried in answer.tried:
        name = join_html(tried.setting.card, " ", draw("code", format_bytes(tried.room.capacity), ""))
        best = ""
        if tried is smallest:
            best = say("the smallest that fits by more than the error margin")
        if not tried.problem:
            rungs.append(draw_rung(_OWN_CARD, tried.room, name, best, tried is smallest))
    more = say("{step}; each bar shows the memory of that card that a program sees", step=step)
    heading = draw("heading", say("The same step on other cards"), more)
    failed = (_draw_failed(tried.setting.card, tried.problem) for tried in answer.tried)
    return join_html(heading, draw_ladder(say("card"), say("full"), rungs, _OWN_CARD), *failed)


def _draw_ways(answer: OnCards, step: str) -> Markup:
    """A line for each card, and what can be done on it side by side."""
    more = say(
        "{step}; each cell is a plan that was run, and its bar shows the memory of that card that a program sees", step=step
    )
    run = [row for row in answer.rows if row.cards]
    smallest = [(said(row.what), smallest_words(row)) for row in run]
    heads = [(said(row.what), said(row.detail)) for row in run]
    lines = []
    for at, card in enumerate(answer.tried):
        cells = [_describe_cell(row.cards[at], row) for row in run]
        lines.append((card.setting.card, format_bytes(card.room.capacity), cells))
    failed = [_draw_failed(row.what, row.problem) for row in answer.rows]
    note = say("Where one does not fit unchanged, changes were planned too, from the largest card down, as long as one helped.")
    table = draw("cards", smallest, heads, lines, _OWN_CARD)
    return join_html(draw("heading", say("What fits which card"), more), table, *failed, draw("paragraph", note))


def _describe_cell(card: Tried, row: CardRow) -> dict[str, object]:
    words = f"{' ' if card.fits else ', '}{card_words(card)}"
    shown = {"room": card.room, "size": format_bytes(card.on_card), "words": words}
    return {"problem": said(card.problem), "is_first": card is find_first(row.cards), **shown}


def draw_generation(generation: Generation) -> Markup:
    """The lengths that were run, and where a GPU is full."""
    capacity, rungs = generation.capacity, []
    rooms = [Room(capacity, run.most, generation.name_fit_of(run.most)) for run in generation.runs]
    scale = scale_of(rooms)
    for run, room in zip(generation.runs, rooms, strict=True):
        cache = say("keys and values {size}", size=format_bytes(run.cache))
        reading = say("reading {size}", size=format_bytes(run.prefill))
        one_more = say("one more {size}", size=format_bytes(run.decode))
        rungs.append(draw_rung(scale, room, count_words(run.length, "token"), row_words((cache, reading, one_more))))
    heading = draw("heading", say("Generation"), generation_sentence(generation))
    notes = (draw("paragraph", draw_prose(words)) for words in generation_words(generation))
    return join_html(heading, draw_ladder(say("tokens"), format_bytes(capacity), rungs, scale), *notes)
