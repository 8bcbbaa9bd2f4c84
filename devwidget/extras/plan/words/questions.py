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
    Tried,
    find_first,
)
from devwidget.extras.plan.words.plan import answer_words, fit_words, fits_words
from devwidget.language.speaking import said, say
from devwidget.records.device import DeviceId
from devwidget.report.page.draw_page import shows, writes
from devwidget.report.report_parts import Part, Sentence, Table
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import row_words

Rows = list[tuple[str, ...]]


@shows(LargestBatch)
def largest_batch_parts(answer: LargestBatch) -> Iterator[Part]:
    """The sentence, and the plans that were run."""
    yield Sentence(largest_sentence(answer), "verdict")
    rows: Rows = [(say("batch"), say("on the card"), "")]
    for each in order_by_size(answer):
        rows.append((str(each.setting.batch), format_bytes(each.on_card), fit_words(each.fit)))
    yield Table(rows, right=(0, 1))
    yield Sentence(say("{plans} run", plans=count_words(len(answer.tried), "plan")))


def order_by_size(answer: LargestBatch) -> list[Tried]:
    """The plans that were run, the smallest batch first."""
    return sorted(answer.tried, key=lambda each: each.setting.batch)


def largest_sentence(answer: LargestBatch) -> str:
    """The largest batch, and the largest that fits by more than plans were off."""
    facts = {"model": answer.model, "taken": format_bytes(answer.on_card), "capacity": format_bytes(answer.capacity)}
    if not answer.size:
        return say("{model}: not even one sample fits, it takes {taken} of {capacity}", **facts)
    told = say("{model}: a batch of {size} fits, {taken} of {capacity}; a larger one does not", size=answer.size, **facts)
    if answer.safe_size == answer.size:
        return told
    if not answer.safe_size:
        return row_words((told, say("none fits by more than the error margin")))
    safe = say("up to {size} fit by more than the error margin", size=answer.safe_size)
    return row_words((told, safe))


@shows(Changes)
def changes_parts(answer: Changes) -> Iterator[Part]:
    """The sentence, and a row for each change."""
    told = say("no change alone makes it fit")
    if answer.cheapest is not None:
        told = say("the cheapest change that fits: {change}", change=said(answer.cheapest.what))
    elif answer.closest is not None:
        told = say("no change makes it fit by more than the error margin")
    size = format_bytes(answer.on_card)
    yield Sentence(say("{model}: {told} · {size} without a change", model=answer.model, told=told, size=size), "verdict")
    head = (say("change"), say("on the card"), say("saved"), "", say("what it costs"), say("what to write"))
    yield Table([head, *(_change_row(answer, change) for change in answer.tried)], right=(1, 2))


def _change_row(answer: Changes, change: Tried) -> tuple[str, ...]:
    if change.problem:
        return (said(change.what), "", "", said(change.problem), "", change.code)
    saved = answer.saved_by(change)
    sign = "-" if saved < 0 else ""
    sizes = format_bytes(change.on_card), sign + format_bytes(abs(saved))
    return (said(change.what), *sizes, fit_words(change.fit), change_cost(change), change.code)


def change_cost(change: Tried) -> str:
    """What is paid for a change; and why it does not fit where its tensors alone would."""
    if not change.room.is_over_by_cache:
        return said(change.cost)
    sizes = {"allocated": format_bytes(change.room.allocated), "cached": format_bytes(change.room.cached)}
    over = say("allocates {allocated}, which would fit; {cached} more are cached between blocks", **sizes)
    return row_words((said(change.cost), over))


@shows(OnCards)
def on_cards_parts(answer: OnCards) -> Iterator[Part]:
    """The step on each card."""
    told = say("{model} fits on none of these cards by more than the error margin", model=answer.model)
    smallest = find_first(answer.tried)
    if smallest is not None:
        facts = {"model": answer.model, "card": smallest.setting.card, "gpus": count_words(answer.gpus, "GPU")}
        told = say("{model}: the smallest card that fits is {card}, {gpus}", **facts)
    yield Sentence(told, "verdict")
    heads = say("card"), say("on the card"), say("capacity"), ""
    if not answer.rows:
        yield Table([heads, *map(_card_row, answer.tried)], right=(1, 2))
        return
    rows: Rows = [("", *heads, say("change"))]
    for row in answer.rows:
        names = [said(row.what), *("" for _ in row.cards[1:])]
        rows += [(name, *_card_row(card), said(card.what)) for name, card in zip(names, row.cards, strict=False)]
    yield Table(rows, right=(2, 3))
    for row in answer.rows:
        words = {"what": said(row.what), "detail": said(row.detail), "told": said(row.problem) or smallest_words(row)}
        yield Sentence(say("{what} ({detail}): {told}", **words))


def _card_row(card: Tried) -> tuple[str, ...]:
    capacity = format_bytes(card.room.capacity)
    if card.problem:
        return (card.setting.card, "", capacity, said(card.problem))
    return (card.setting.card, format_bytes(card.on_card), capacity, fit_words(card.fit))


def card_words(card: Tried) -> str:
    """Whether it fits, with which change, or by how much it does not."""
    facts = {"size": format_bytes(abs(card.room.capacity - card.on_card)), "change": said(card.what)}
    match card.fit, bool(card.what):
        case "does not fit", True:
            return say("{size} too much even with {change}", **facts)
        case "does not fit", False:
            return say("{size} too much", **facts)
        case "fits", True:
            return say("fits with {change}", **facts)
        case "fits by less", True:
            return say("fits closely with {change}", **facts)
    return fit_words(card.fit)


def smallest_words(row: CardRow) -> str:
    """The smallest card on which it fits by more than plans were off."""
    smallest = find_first(row.cards)
    if smallest is None:
        fits = find_first(row.cards, "fits by less") is not None
        if fits:
            return say("fits none of these by more than the error margin")
        return say("fits none of these")
    facts = {"card": smallest.setting.card, "change": said(smallest.what)}
    if not smallest.what:
        larger = row.cards[row.cards.index(smallest) + 1 :]
        goes_on = bool(larger) and all(card.fit == "fits" for card in larger)
        if goes_on:
            return say("fits {card} and larger", **facts)
        return say("fits {card}", **facts)
    plain = find_first([card for card in row.cards if not card.what])
    if plain is None:
        return say("fits {card} with {change}", **facts)
    return say("fits {plain} unchanged, {card} with {change}", plain=plain.setting.card, **facts)


@shows(Generation)
def generation_parts(generation: Generation) -> Iterator[Part]:
    """What writing on takes."""
    yield Sentence(generation_sentence(generation), "verdict")
    yield Table(_generation_rows(generation), right=range(5))
    yield from map(Sentence, generation_words(generation))


def generation_words(generation: Generation) -> Iterator[str]:
    """The sentences below the lengths."""
    yield _logits_words(generation.logits)
    if generation.num_beams > 1:
        yield say("each text is processed in {count} beams", count=generation.num_beams)
    grows = {"size": format_bytes(round(generation.bytes_per_token)), "longest": f"{generation.longest:,}"}
    if generation.cache == "static":
        yield say("a static cache takes {size} for each token of the batch, all of it from the start", **grows)
        return
    full = say("the cache grows by {size} for each token of the batch, and a GPU is full at {longest} tokens", **grows)
    yield full if generation.longest else say("the cache grows by {size} for each token of the batch", **grows)


def _logits_words(positions: int) -> str:
    if positions == 1:
        return say("only the last position of the prompt has logits, as in `generate`")
    if positions:
        return say("{count} positions of the prompt have logits", count=positions)
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
    rows: Rows = [(say("tokens"), say("cache"), say("reading them"), say("one more"))]
    for at in generation.runs:
        rows.append((f"{at.length:,}", *map(format_bytes, (at.cache, at.prefill, at.decode))))
    if generation.reserved:
        reserved = [say("reserved"), *(format_bytes(at.decode_reserved) for at in generation.runs)]
        rows = [(*row, size) for row, size in zip(rows, reserved, strict=True)]
    return rows


@writes(Layout)
def layout_parts(layout: Layout) -> Iterator[Part]:
    """Where the blocks of a model go."""
    yield Sentence(layout_sentence(layout), "verdict")
    yield Table(_layout_rows(layout), right=(1, 2, 3, 4))
    if layout.auto is not None:
        yield Sentence(auto_sentence(layout.auto))
    yield from (Sentence(say("tied: {paths}", paths=", ".join(paths))) for paths in layout.ties)
    if layout.rejected:
        yield Table(rejected_rows(layout), title=say("tried before"), has_heading=False)


def rejected_rows(layout: Layout) -> list[tuple[str, str]]:
    """What was tried before, and why it was rejected."""
    return [(said(each.what), said(each.why)) for each in layout.rejected]


def layout_sentence(layout: Layout) -> str:
    """The answer."""
    return say(
        "Layout: {model} over {gpus}: {answer} · {moved} in a forward",
        model=layout.model,
        gpus=count_words(len(layout.devices), "GPU"),
        answer=say("fits") if layout.fits else say("no tried split fits; this one needs least"),
        moved=hop_words(layout.hops, layout.crossing),
    )


def hop_words(hops: int, crossing: int) -> str:
    """How often activations go to another GPU, and how much."""
    if hops:
        return row_words((count_words(hops, "hop"), format_bytes(crossing)))
    return say("no hops")


def auto_sentence(auto: AutoProposal) -> str:
    """What accelerate's map takes."""
    if auto.problem:
        return say('accelerate\'s "auto" has no map for it: {problem}', problem=said(auto.problem))
    taken = row_words(say("{device} {size}", device=gpu.device, size=format_bytes(gpu.on_card)) for gpu in auto.devices)
    return say('accelerate\'s "auto" {answer}: {taken}', answer=fits_words(auto.fits), taken=taken)


def _layout_rows(layout: Layout) -> Rows:
    rows: Rows = [("", say("taken"), say("capacity"), say("weights"), say("kept"), say("blocks"))]
    for gpu in layout.devices:
        mine = [block for block in layout.blocks if block.device == gpu.device]
        sizes = gpu.on_card, gpu.capacity, sum(block.weights for block in mine), sum(block.kept for block in mine)
        rows.append((str(gpu.device), *map(format_bytes, sizes), _block_runs(layout, gpu.device)))
    return rows


def _block_runs(layout: Layout, device: DeviceId) -> str:
    """Paths of blocks that run one after the other, the first and the last of each run."""
    runs = []
    for at, group in groupby(layout.blocks, lambda block: block.device):
        first, *rest = (block.path or say("the whole model") for block in group)
        if at == device:
            runs.append(f"{first} ... {rest[-1]}" if rest else first)
    return ", ".join(runs)
