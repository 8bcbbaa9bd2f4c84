"""What was asked of a plan, drawn for its page: the ladder of changes, sizes, cards, generations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from devwidget.extras.plan.evidence.compared import Fit, judge_room
from devwidget.extras.plan.page.marks import (
    GLYPHS,
    Scale,
    draw_glyph,
    draw_keys,
    draw_prose,
    draw_rung,
    draw_rung_head,
    draw_spare,
)
from devwidget.extras.plan.page.step import draw_heading
from devwidget.extras.plan.records.answers import (
    CardRow,
    Changes,
    Fitted,
    Generation,
    LargestBatch,
    OnCards,
    OneCard,
    PlannedChange,
)
from devwidget.extras.plan.words.plan import fit_words
from devwidget.extras.plan.words.questions import (
    card_words,
    change_cost,
    generation_sentence,
    generation_words,
    largest_sentence,
    smallest_words,
)
from devwidget.language.speaking import said, say
from devwidget.report.style.safe_text import Markup, html_element, join_html
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import row_words

_ROOM = 1.02


def draw_changes(changes: Changes) -> Markup:
    """Three lists under one wall: what fits, what fits by less than plans were off, what does not."""
    run = [change for change in changes.changes if not change.problem]
    capacity = max((change.capacity for change in run), default=0) or changes.on_card
    scale = Scale(_ROOM * max([capacity, changes.on_card, *(change.on_card for change in run)]))
    heads = say("change"), say("on the card"), say("to spare"), say("what it costs")
    without = format_bytes(changes.on_card)
    heading = draw_heading(
        say("What would make it fit"), say("each line is a plan that was run; {size} without a change", size=without)
    )
    rungs = [part for fit, group in _group_changes(changes) for part in _draw_group(fit, group, scale, capacity, changes)]
    failed = [_draw_failed(change.what, change.problem) for change in changes.changes]
    head = draw_rung_head(scale, capacity, format_bytes(capacity), heads)
    return join_html(heading, _draw_ladder(head, rungs), *failed)


def _draw_ladder(head: Markup, rungs: Iterable[Markup]) -> Markup:
    return html_element("div", head, *rungs, class_="dw-rungs")


def _draw_failed(what: str, problem: str) -> Markup:
    """What cannot be run, and why; nothing of what ran."""
    return html_element("p", html_element("b", said(what)), ": ", said(problem)) if problem else Markup("")


def _group_changes(changes: Changes) -> Iterator[tuple[Fit, list[PlannedChange]]]:
    fits: tuple[Fit, ...] = ("fits", "fits by less", "does not fit")
    for fit in fits:
        if group := [change for change in changes.changes if change.fit == fit and not change.problem]:
            yield fit, group


def _group_words(fit: Fit) -> tuple[str, str]:
    if fit == "fits":
        return say("Fit"), say("by more than plans were off on real cards, the cheapest first")
    if fit == "fits by less":
        return say("Fit by less"), say("than plans were off on real cards: try before you count on it")
    return say("Do not fit"), say("what saves most first")


def _draw_group(fit: Fit, group: Sequence[PlannedChange], scale: Scale, capacity: int, changes: Changes) -> Iterator[Markup]:
    name, more = _group_words(fit)
    yield html_element("p", html_element("b", name), f" {more}", class_="dw-group")
    for change in group:
        words = join_html(said(change.what), html_element("code", change.code) if change.code else Markup(""))
        cells = format_bytes(change.on_card), draw_spare(change.on_card, capacity), change_cost(change)
        look = "dw-rung-first" if change is changes.cheapest else ""
        yield draw_rung(fit, words, scale, (change.on_card, capacity), cells, look)


def draw_batches(batch: LargestBatch) -> Markup:
    """The batches that were planned for the largest."""
    ordered = sorted(batch.runs, key=lambda run: run.size)
    scale = Scale(_ROOM * max([batch.capacity, *(run.on_card for run in ordered)]))
    heads = say("batch"), say("on the card"), say("to spare"), ""
    rungs = []
    for run in ordered:
        mark = say("the largest") if run.size == batch.size else ""
        if run.size == batch.safe_size and run.fits:
            mark = say("the largest that fits by more than plans were off on real cards")
        cells = format_bytes(run.on_card), draw_spare(run.on_card, batch.capacity), mark
        look = "dw-rung-first" if run.size == batch.safe_size else ""
        rungs.append(draw_rung(run.fit, count_words(run.size, "sample"), scale, (run.on_card, batch.capacity), cells, look))
    heading = draw_heading(say("The largest batch"), largest_sentence(batch))
    head = draw_rung_head(scale, batch.capacity, format_bytes(batch.capacity), heads)
    return join_html(heading, _draw_ladder(head, rungs))


def draw_sizes(fitted: Fitted) -> Markup:
    """Batch upwards, length to the right: what the fullest GPU takes, each cell a plan that was run."""
    wide = len(fitted.lengths)
    cells: list[Markup] = []
    for row in reversed(range(len(fitted.batches))):
        cells.append(html_element("span", f"{fitted.batches[row]:,}", class_="dw-size-of"))
        cells += [_draw_size(fitted, row, column) for column in range(wide)]
    cells.append(html_element("span", say("batch × length"), class_="dw-size-of"))
    cells += [html_element("span", f"{length:,}" if length else "", class_="dw-size-of") for length in fitted.lengths]
    heading = draw_heading(say("Batch × length"), say("samples upwards, length to the right; each cell is a plan that was run"))
    grid = html_element("div", *cells, class_="dw-sizes", style=f"--dw-across:{wide}")
    return join_html(heading, draw_keys(_list_size_keys(fitted)), grid, _describe_error(fitted))


def _describe_error(fitted: Fitted) -> Markup:
    """How far it is off what the sliders say between these sizes."""
    if not fitted.checked:
        return Markup("")
    facts = {"count": fitted.checked, "off": f"{fitted.off:.1%}"}
    told = say(
        "Between these sizes sliders estimate: {count} more were planned there, and estimates were at most {off} off.", **facts
    )
    return html_element("p", told)


def _list_size_keys(fitted: Fitted) -> Iterator[tuple[str, str, str]]:
    """What cells and lines mean, of those that are there."""
    seen = {fullest_of_size(fitted, at)[2] for at in range(len(fitted.batches) * len(fitted.lengths))}
    names = say("fits"), say("fits, by less than plans were off on real cards"), say("does not fit")
    for fit, look, name in zip(_SIZE_LOOKS, _SIZE_LOOKS.values(), names, strict=True):
        if fit in seen:
            yield look or "dw-size-fits", "", name
    if len(seen) > 1 and "does not fit" in seen:
        yield "dw-key-end", "", say("the end of what fits")
    if {"fits", "fits by less"} <= seen:
        yield "dw-key-safe", "", say("the end of what fits by more")


_SIZE_LOOKS: dict[Fit, str] = {"fits": "", "fits by less": "dw-size-close", "does not fit": "dw-size-over"}


def fullest_of_size(fitted: Fitted, at: int) -> tuple[int, int, Fit]:
    """Of one plan of the grid what the fullest GPU takes, what it has, and the answer."""
    gpu = min(fitted.gpus, key=lambda gpu: gpu.capacity - gpu.taken[at])
    taken = gpu.taken[at]
    return taken, gpu.capacity, judge_room(taken, gpu.capacity, is_card=bool(fitted.card))


def _draw_size(fitted: Fitted, row: int, column: int) -> Markup:
    wide = len(fitted.lengths)
    taken, _, fit = fullest_of_size(fitted, row * wide + column)
    looks = [_SIZE_LOOKS[fit]]
    if row + 1 < len(fitted.batches):
        looks.append(_find_line(fit, fullest_of_size(fitted, (row + 1) * wide + column)[2], "above"))
    if column + 1 < wide:
        looks.append(_find_line(fit, fullest_of_size(fitted, row * wide + column + 1)[2], "beside"))
    if (fitted.batches[row], fitted.lengths[column]) == fitted.asked:
        looks.append("dw-asked-size")
    told = html_element("b", format_bytes(taken), title=fit_words(fit))
    return html_element("span", told, class_=" ".join(filter(None, looks)))


def _find_line(fit: Fit, following: Fit, side: str) -> str:
    """The look of the line between two sizes: solid where one of them does not fit, dashed where one fits by less."""
    if fit == following:
        return ""
    return f"dw-end-{side}" if "does not fit" in (fit, following) else f"dw-safe-{side}"


def draw_cards(cards: OnCards, step: str) -> Markup:
    """Each card with how full it is: a bar is of its own card."""
    if cards.rows:
        return _draw_ways(cards, step)
    heads = say("card"), say("on the card"), say("to spare"), ""
    scale, rungs = Scale(1.25), []
    for card in cards.cards:
        if card.problem:
            continue
        share = min(card.on_card / card.capacity, 1.25)
        what = join_html(card.card, " ", html_element("code", format_bytes(card.capacity)))
        best = say("the smallest that fits by more than plans were off") if card is cards.smallest else ""
        cells = format_bytes(card.on_card), draw_spare(card.on_card, card.capacity), best
        look = "dw-rung-first" if card is cards.smallest else ""
        rungs.append(draw_rung(card.fit, what, scale, (share, 1), cells, look))
    heading = draw_heading(
        say("The same step on other cards"), say("{step}; a bar is of its own card, up to what a program finds", step=step)
    )
    failed = [_draw_failed(card.card, card.problem) for card in cards.cards]
    head = draw_rung_head(scale, 1, say("full"), heads)
    return join_html(heading, _draw_ladder(head, rungs), *failed)


def _draw_ways(cards: OnCards, step: str) -> Markup:
    """A line for each card, and what can be done on it side by side."""
    more = say("{step}; each cell is a plan that was run, its bar is of its own card up to what a program finds", step=step)
    answers = html_element("p", *_draw_smallest(cards), class_="dw-smallest-cards")
    run = [row for row in cards.rows if row.cards]
    heads = (html_element("th", html_element("b", said(row.what)), html_element("span", said(row.detail))) for row in run)
    lines = [_draw_card_line(at, card, run) for at, card in enumerate(cards.cards)]
    head = html_element("thead", html_element("tr", html_element("th", say("card")), *heads))
    table = html_element("table", head, html_element("tbody", *lines), class_="dw-cards", style=f"--dw-across:{len(run)}")
    failed = [_draw_failed(row.what, row.problem) for row in cards.rows]
    note = say("Where one does not fit as it is, changes were planned too, from the largest card down, as long as one helped.")
    return join_html(draw_heading(say("What fits which card"), more), answers, table, *failed, html_element("p", note))


def _draw_smallest(cards: OnCards) -> Iterator[Markup]:
    """The answer: what each thing needs at least, of the cards that were planned."""
    for at, row in enumerate(row for row in cards.rows if row.cards):
        yield Markup("; " if at else "")
        yield html_element("b", said(row.what))
        yield join_html(" ", smallest_words(row))


def _draw_card_line(at: int, card: OneCard, rows: Sequence[CardRow]) -> Markup:
    name = html_element("th", html_element("b", card.card), html_element("span", format_bytes(card.capacity)), scope="row")
    return html_element("tr", name, *(_draw_card_cell(row.cards[at], row.cards[at] is row.smallest) for row in rows))


def _draw_card_cell(card: OneCard, is_smallest: bool) -> Markup:
    if card.problem:
        return html_element("td", said(card.problem))
    scale = Scale(1.25)
    share = min(card.on_card / card.capacity, scale.reach)
    over = scale.draw_stretch(1, share, "dw-too-much") if share > 1 else Markup("")
    inside = scale.draw_stretch(0, min(share, 1), "" if share <= 1 else "dw-hollow")
    track = html_element("span", inside, over, scale.draw_wall(1), class_="dw-track", **{"aria-hidden": "true"})
    told = html_element(
        "span", html_element("b", format_bytes(card.on_card)), f"{' ' if card.fits else ', '}{card_words(card)}"
    )
    return html_element("td", draw_glyph(GLYPHS[card.fit]), told, track, class_="dw-first-card" if is_smallest else "")


def draw_generation(generation: Generation) -> Markup:
    """The lengths that were run, and where a GPU is full."""
    capacity = generation.capacity
    scale = Scale(_ROOM * max(capacity, *(run.most for run in generation.runs)))
    what = say("on the card") if generation.reserved else say("allocated")
    heads = say("tokens"), what, say("to spare"), ""
    rungs = []
    for run in generation.runs:
        told = row_words(
            (
                say("keys and values {size}", size=format_bytes(run.cache)),
                say("reading {size}", size=format_bytes(run.prefill)),
                say("one more {size}", size=format_bytes(run.decode)),
            )
        )
        cells = format_bytes(run.most), draw_spare(run.most, capacity), told
        fit = generation.name_fit_of(run.most)
        rungs.append(draw_rung(fit, count_words(run.length, "token"), scale, (run.most, capacity), cells))
    heading = draw_heading(say("Generation"), generation_sentence(generation))
    head = draw_rung_head(scale, capacity, format_bytes(capacity), heads)
    return join_html(
        heading, _draw_ladder(head, rungs), *(html_element("p", draw_prose(words)) for words in generation_words(generation))
    )
