"""Answers to questions about a plan: one sentence, then a table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from devwidget.extras.plan.records.answers import (
    AutoProposal,
    CardRow,
    Changes,
    Generation,
    LargestBatch,
    Layout,
    OnCards,
    OneCard,
    PlannedChange,
)
from devwidget.extras.plan.words.plan import answer_words, fit_words, fits_words
from devwidget.language.speaking import said, say
from devwidget.report.page.draw_page import shows, writes
from devwidget.report.report_parts import Part, Sentence, Table
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import row_words

Rows = list[tuple[str, ...]]


def _what_if_sentence(answer: LargestBatch | Changes) -> str:
    """The answer."""
    if isinstance(answer, LargestBatch):
        return largest_sentence(answer)
    told = say("no change alone makes it fit")
    if answer.cheapest is not None:
        told = say("the cheapest change that fits: {change}", change=said(answer.cheapest.what))
    elif answer.closest is not None:
        told = say("no change makes it fit by more than plans were off on real cards")
    size = format_bytes(answer.on_card)
    return say("{model}: {told} · {size} without a change", model=answer.model, told=told, size=size)


def largest_sentence(answer: LargestBatch) -> str:
    """The largest batch, and the largest that fits by more than plans were off."""
    facts = {"model": answer.model, "taken": format_bytes(answer.on_card), "capacity": format_bytes(answer.capacity)}
    if not answer.size:
        return say("{model}: not even one sample fits, it takes {taken} of {capacity}", **facts)
    told = say("{model}: a batch of {size} fits, {taken} of {capacity}, and a larger one does not", size=answer.size, **facts)
    if answer.safe_size == answer.size:
        return told
    if not answer.safe_size:
        return row_words((told, say("none fits by more than plans were off on real cards")))
    safe = say("up to {size} fit by more than plans were off on real cards", size=answer.safe_size)
    return row_words((told, safe))


def _what_if_rows(answer: LargestBatch | Changes) -> Rows:
    """The plans that were run, under a heading."""
    if isinstance(answer, Changes):
        head = (say("change"), say("on the card"), say("saved"), "", say("what it costs"), say("what to write"))
        return [head, *(_change_row(change) for change in answer.changes)]
    ordered = sorted(answer.runs, key=lambda run: run.size)
    planned = [(str(run.size), format_bytes(run.on_card), fit_words(run.fit)) for run in ordered]
    return [(say("batch"), say("on the card"), ""), *planned]


def _change_row(change: PlannedChange) -> tuple[str, ...]:
    if change.problem:
        return (said(change.what), "", "", said(change.problem), "", change.code)
    sign = "-" if change.saved < 0 else ""
    sizes = format_bytes(change.on_card), sign + format_bytes(abs(change.saved))
    return (said(change.what), *sizes, fit_words(change.fit), change_cost(change), change.code)


def change_cost(change: PlannedChange) -> str:
    """What is paid for a change; and why it does not fit where its tensors alone would."""
    if not change.is_over_by_cache:
        return said(change.cost)
    sizes = {"allocated": format_bytes(change.allocated), "cached": format_bytes(change.cached)}
    over = say("allocates {allocated}, which would fit; {cached} more lie cached between blocks", **sizes)
    return row_words((said(change.cost), over))


@shows(LargestBatch, Changes)
def what_if_parts(answer: LargestBatch | Changes) -> Iterator[Part]:
    """The sentence and the table."""
    yield Sentence(_what_if_sentence(answer), "verdict")
    table = _what_if_rows(answer)
    yield Table(table, right=(1, 2) if isinstance(answer, Changes) else (0, 1))
    if isinstance(answer, LargestBatch):
        yield Sentence(say("{plans} run", plans=count_words(len(table) - 1, "plan")))


@shows(OnCards)
def on_cards_parts(cards: OnCards) -> Iterator[Part]:
    """The step on each card."""
    told = say("{model} fits on none of these cards by more than plans were off", model=cards.model)
    if cards.smallest is not None:
        facts = {"model": cards.model, "card": cards.smallest.card, "gpus": count_words(cards.gpus, "GPU")}
        told = say("{model}: the smallest card that fits is {card}, {gpus}", **facts)
    yield Sentence(told, "verdict")
    if not cards.rows:
        yield Table([(say("card"), say("on the card"), say("capacity"), ""), *map(_card_row, cards.cards)], right=(1, 2))
        return
    head = ("", say("card"), say("on the card"), say("capacity"), "", say("change"))
    yield Table([head, *(cells for row in cards.rows for cells in _way_rows(row))], right=(2, 3))
    for row in cards.rows:
        words = {"what": said(row.what), "detail": said(row.detail), "told": said(row.problem) or smallest_words(row)}
        yield Sentence(say("{what} ({detail}): {told}", **words))


def _way_rows(row: CardRow) -> Iterator[tuple[str, ...]]:
    for card in row.cards:
        name, taken, *rest = _card_row(card)
        yield said(row.what) if card is row.cards[0] else "", name, taken, *rest, said(card.change)


def card_words(card: OneCard) -> str:
    """Whether it fits, with which change, or by how much it does not."""
    facts = {"size": format_bytes(abs(card.capacity - card.on_card)), "change": said(card.change)}
    if card.problem:
        return said(card.problem)
    if not card.change:
        return say("{size} too much", **facts) if not card.fits else fit_words(card.fit)
    if not card.fits:
        return say("{size} too much even with {change}", **facts)
    return say("fits with {change}", **facts) if card.fit == "fits" else say("fits closely with {change}", **facts)


def smallest_words(row: CardRow) -> str:
    """The smallest card on which it fits by more than plans were off."""
    if row.smallest is None:
        fits = any(card.fits for card in row.cards)
        return say("fits none of these by more than plans were off") if fits else say("fits none of these")
    if not row.smallest.change:
        larger = row.cards[row.cards.index(row.smallest) :]
        goes_on = len(larger) > 1 and all(card.fit == "fits" for card in larger)
        return say("fits {card} and larger", card=row.smallest.card) if goes_on else say("fits {card}", card=row.smallest.card)
    plain = next((card for card in row.cards if card.fit == "fits" and not card.change), None)
    facts = {"card": row.smallest.card, "change": said(row.smallest.change)}
    if plain is None:
        return say("fits {card} with {change}", **facts)
    return say("fits {plain} as it is, {card} with {change}", plain=plain.card, **facts)


def _card_row(card: OneCard) -> tuple[str, ...]:
    if card.problem:
        return (card.card, "", format_bytes(card.capacity), said(card.problem))
    return (card.card, format_bytes(card.on_card), format_bytes(card.capacity), fit_words(card.fit))


@shows(Generation)
def generation_parts(generation: Generation) -> Iterator[Part]:
    """What writing on takes."""
    yield Sentence(generation_sentence(generation), "verdict")
    yield Table(_generation_rows(generation), right=range(5))
    yield from map(Sentence, generation_words(generation))


def generation_words(generation: Generation) -> Iterator[str]:
    """What stands below the lengths."""
    yield _logits_words(generation.logits)
    if generation.num_beams > 1:
        yield say("each text is read and written in {count} beams", count=generation.num_beams)
    grows = {"size": format_bytes(round(generation.bytes_per_token)), "longest": f"{generation.longest:,}"}
    if generation.cache == "static":
        yield say("a static cache takes {size} for each token of the batch, all of it from the start", **grows)
        return
    full = say("the cache grows by {size} for each token of the batch, and a GPU is full at {longest} tokens", **grows)
    yield full if generation.longest else say("the cache grows by {size} for each token of the batch", **grows)


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
        answer=answer_words(generation.fit),
        taken=format_bytes(generation.taken),
        capacity=format_bytes(generation.capacity),
    )


def _generation_rows(generation: Generation) -> Rows:
    """The lengths, under a heading."""
    on_card = (say("reserved"),) if generation.reserved else ()
    lengths = [
        (f"{at.length:,}", *map(format_bytes, (at.cache, at.prefill, at.decode, at.decode_reserved)[: 3 + len(on_card)]))
        for at in generation.runs
    ]
    return [(say("tokens"), say("cache"), say("reading them"), say("one more"), *on_card), *lengths]


@writes(Layout)
def layout_parts(layout: Layout) -> Iterator[Part]:
    """Where the blocks of a model go."""
    yield Sentence(layout_sentence(layout), "verdict")
    yield Table(_layout_rows(layout), right=(1, 2, 3, 4))
    if layout.auto is not None:
        yield Sentence(auto_sentence(layout.auto))
    yield from (Sentence(say("tied: {paths}", paths=", ".join(paths))) for paths in layout.ties)
    if layout.rejected:
        rows = [(said(each.what), said(each.why)) for each in layout.rejected]
        yield Table(rows, title=say("tried before"), has_heading=False)


def layout_sentence(layout: Layout) -> str:
    """The answer."""
    return say(
        "Layout: {model} over {gpus}: {answer} · {moved} in a forward",
        model=layout.model,
        gpus=count_words(len(layout.devices), "GPU"),
        answer=say("fits") if layout.fits else say("fits on no split that was tried; this one needs least"),
        moved=f"{count_words(layout.hops, 'hop')}, {format_bytes(layout.crossing)}" if layout.hops else say("no hops"),
    )


def auto_sentence(auto: AutoProposal) -> str:
    """What accelerate's map takes."""
    if auto.problem:
        return say('accelerate\'s "auto" has no map for it: {problem}', problem=said(auto.problem))
    taken = row_words(say("{device} {size}", device=gpu.device, size=format_bytes(gpu.on_card)) for gpu in auto.devices)
    return say('accelerate\'s "auto" {answer}: {taken}', answer=fits_words(auto.fits), taken=taken)


def _layout_rows(layout: Layout) -> Rows:
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
