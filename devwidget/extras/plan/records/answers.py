"""Answers to questions about a plan: other sizes, the largest batch, what would make a step smaller, generation, a layout."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from devwidget.extras.plan.evidence.compared import Fit, judge_room, name_fit
from devwidget.records.device import DeviceId
from devwidget.records.schema.fields import Length, ProcessLocal, Size, process_local
from devwidget.records.schema.record import Record

BATCH_KNOTS, LENGTH_KNOTS = 2, 3
"""Knots that an estimate is made of: what a step takes grows along lines with the batch, and with attention as a square with
the length of texts."""


@dataclass(frozen=True, slots=True)
class AskedSize:
    """What a page of a plan can change of its step.

    Attributes:
        batch: samples; 0 where the batch has no size.
        length: tokens of each text; 0 where there is no text.
        card: the kind of card; "" where GPUs are a capacity and nothing else.
        memory: bytes of each GPU; empty where a card is named.
    """

    batch: Size
    length: Size
    card: str
    memory: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class FittedGpu:
    """One GPU.

    Attributes:
        device: which.
        capacity: what it has, in bytes.
        taken: the most that was taken of it in each plan, in bytes; batch after batch, in each the lengths.
    """

    device: DeviceId
    capacity: int
    taken: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Plans on a grid.

    Attributes:
        model: class of the model.
        card: the kind of card, if one is named.
        batches: samples of the plans that were run.
        lengths: tokens of each text in them; one alone where no text is in the batch, or none can be longer or shorter.
        asked: batch and length of the step itself.
        gpus: what was taken.
        checked: plans that were run between them.
        off: the most that an estimate was off there, as a share.
    """

    model: str
    card: str
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    asked: tuple[int, int]
    gpus: tuple[FittedGpu, ...]
    checked: int = 0
    off: float = 0.0

    def estimate_at(self, batch: int, length: int) -> tuple[int, ...]:
        """Bytes of each GPU, estimated between the plans."""
        rows, columns = knot_weights(self.batches, batch, BATCH_KNOTS), knot_weights(self.lengths, length, LENGTH_KNOTS)
        wide = len(self.lengths)
        return tuple(
            round(sum(gpu.taken[row * wide + column] * a * b for row, a in rows for column, b in columns)) for gpu in self.gpus
        )


def knot_weights(knots: Sequence[int], at: float, most: int) -> list[tuple[int, float]]:
    """How much each of the nearest knots counts, by Lagrange's polynomial through them."""
    above = min(bisect_right(knots, at), len(knots) - 1)
    first = max(min(above - 1, len(knots) - most), 0)
    near = range(first, min(first + most, len(knots)))
    return [(n, prod((at - knots[m]) / (knots[n] - knots[m]) for m in near if m != n)) for n in near]


@dataclass(frozen=True, slots=True)
class CacheAt:
    """One length that was run: the text up to it, and one token more. All sizes are of the GPU that takes most, but the cache.

    Attributes:
        length: tokens of each text.
        cache: bytes of keys and values on all GPUs.
        prefill: the most that is allocated while the text is read, in bytes.
        decode: the most that is allocated while one token more is written, in bytes.
        prefill_reserved: what the caching allocator takes while the text is read, where a card is named.
        decode_reserved: the same for the token, with what was cached before given back.
    """

    length: Size
    cache: Size
    prefill: Size
    decode: Size
    prefill_reserved: Size = 0
    decode_reserved: Size = 0

    @property
    def taken(self) -> int:
        """Bytes taken from the card by the last token: what is reserved, where that is predicted."""
        return self.decode_reserved or self.decode

    @property
    def most(self) -> int:
        """The same of whichever takes more: reading the text, or the last token."""
        return max(self.taken, self.prefill_reserved or self.prefill)


@dataclass(frozen=True, slots=True)
class Generation(Record):
    """The memory of a generation.

    Attributes:
        model: class of the model.
        prompt: tokens of each text to begin with.
        new_tokens: tokens that are written.
        bytes_per_token: what the cache of the whole batch grows by.
        peak: the most that a GPU has allocated: when the prompt is read, or when the last token is written.
        capacity: of that GPU, without CUDA's context where a card is named.
        longest: tokens with which a GPU is full, from the line through the lengths that were run; 0 if the cache does not grow.
        fits: whether the peak is within the capacity, and what is reserved where a card is named.
        runs: the lengths that were run; the last is that of the answer.
        reserved: the most that the caching allocator takes, where a card is named.
        logits: how many positions of the prompt have logits: 1 where the model can do as `generate` asks; 0 for all.
        cache: `dynamic`, which grows, or `static`, which is there for all tokens from the start.
        context: what CUDA takes on the card besides, where one is named.
        num_beams: in which each text is read and written.
    """

    model: str
    prompt: Size
    new_tokens: Size
    bytes_per_token: float
    peak: Size
    capacity: Size
    longest: Size
    fits: bool
    runs: tuple[CacheAt, ...]
    reserved: Size = 0
    logits: Size = 0
    cache: str = "dynamic"
    context: Size = 0
    num_beams: Size = 1

    @property
    def taken(self) -> int:
        """The most that is taken, as far as it is predicted."""
        return self.reserved or self.peak

    @property
    def is_close(self) -> bool:
        """Whether it fits by less than plans were off on real cards."""
        return self.fit == "fits by less"

    @property
    def fit(self) -> Fit:
        """Whether it fits by more than plans were off on real cards, by less, or not."""
        return self.name_fit_of(max(self.peak, self.reserved))

    def name_fit_of(self, taken: int) -> Fit:
        """The same of so many bytes: reserved beside the context where a card is named, else allocated."""
        return judge_room(taken, self.capacity, self.context, is_card=bool(self.reserved))


@dataclass(frozen=True, slots=True)
class BlockCost:
    """One block, in bytes.

    Attributes:
        path: of the module.
        device: where it goes.
        weights: parameters and buffers.
        kept: what its forward leaves behind, such as what backward needs.
        beyond: what its forward takes besides while it runs.
        passed: its output.
        dtype: of the first tensor of that.
        shape: of the same.
    """

    path: str
    device: DeviceId
    weights: Size = 0
    kept: Size = 0
    beyond: Size = 0
    passed: Size = 0
    dtype: str = ""
    shape: tuple[Length, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedGpu:
    """One GPU of a layout, as the plan of the whole step saw it.

    Attributes:
        device: which GPU.
        on_card: the most that is taken of it, in bytes.
        capacity: what it has, in bytes.
        is_close: whether it has room by less than plans were off on real cards.
    """

    device: DeviceId
    on_card: Size
    capacity: Size
    is_close: bool = False

    @property
    def fit(self) -> Fit:
        """Whether it fits by more than plans were off on real cards, by less, or not."""
        return name_fit(self.on_card <= self.capacity, self.is_close)


@dataclass(frozen=True, slots=True)
class AutoProposal:
    """What accelerate proposes for the same step and GPUs, planned in full.

    Attributes:
        fits: whether every GPU has room.
        devices: the GPUs, in order.
        places: where each block of the layout is in it; empty where its map splits one of them.
        hops: as of a layout, where there are places.
        crossing: as of a layout, where there are places.
        problem: why there is none; "" if there is one.
    """

    fits: bool
    devices: tuple[PlacedGpu, ...] = ()
    places: tuple[DeviceId, ...] = ()
    hops: Size = 0
    crossing: Size = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A layout that was run, and does not fit, or only closer than another.

    Attributes:
        what: how it divides the blocks, such as `4 on 0, 3 on 1`.
        why: in words.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Layout(Record):
    """Where the blocks of a model go.

    Attributes:
        model: class of the model.
        fits: whether its step, run on virtual GPUs, fits; of those that do not fit, the one that needs least is shown.
        blocks: in the order in which they run.
        devices: the GPUs, in order.
        hops: how often activations go to another GPU in one forward, the way back of the output included.
        crossing: bytes that do.
        ties: paths of blocks that share weights.
        rejected: layouts that were run before, in their order.
        auto: what accelerate's "auto" proposes; None for one GPU, and in files of older versions.
    """

    model: str
    fits: bool
    blocks: tuple[BlockCost, ...]
    devices: tuple[PlacedGpu, ...]
    hops: Size = 0
    crossing: Size = 0
    ties: tuple[tuple[str, ...], ...] = ()
    rejected: tuple[Rejected, ...] = ()
    auto: AutoProposal | None = None
    _page: ProcessLocal[Callable[[Layout], None]] = process_local()

    def _ipython_display_(self) -> None:
        """Show the page with its buttons where a notebook runs; what a viewer without a kernel shows is saved beside it."""
        if self._page.value is None:
            raise NotImplementedError("a layout that was loaded is shown as it was saved")
        self._page.value(self)

    @property
    def tightest(self) -> PlacedGpu:
        """The GPU of which the largest share is taken."""
        return max(self.devices, key=lambda gpu: gpu.on_card / gpu.capacity)

    @property
    def fit(self) -> Fit:
        """Whether every GPU has room by more than plans were off on real cards, one by less, or one has none."""
        return name_fit(self.fits, any(gpu.is_close for gpu in self.devices))

    @property
    def device_map(self) -> dict[str, int]:
        """As accelerate's `dispatch_model` and transformers' `from_pretrained` take it."""
        return {block.path: block.device.index or 0 for block in self.blocks}


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """One plan that was run.

    Attributes:
        size: samples of the batch.
        on_card: the most that a GPU takes, in bytes.
        fits: whether every GPU has room.
        is_close: whether one has it by less than plans were off on real cards.
    """

    size: int
    on_card: Size
    fits: bool
    is_close: bool = False

    @property
    def fit(self) -> Fit:
        """Whether it fits by more than plans were off on real cards, by less, or not."""
        return name_fit(self.fits, self.is_close)


@dataclass(frozen=True, slots=True)
class LargestBatch(Record):
    """The largest batch that fits.

    Attributes:
        model: class of the model.
        size: samples; 0 if not even one fits.
        on_card: the most that a GPU takes with it, or with one sample if that does not fit, in bytes.
        capacity: of that GPU.
        runs: the plans that were run, in their order; the answer and the next larger batch are among them.
        safe_size: samples of the largest that fits by more than plans were off on real cards; 0 if none does.
    """

    model: str
    size: int
    on_card: Size
    capacity: Size
    runs: tuple[PlannedSize, ...]
    safe_size: int = 0


@dataclass(frozen=True, slots=True)
class OneCard:
    """The step on one kind of card, planned in full; sizes are of the GPU with the least room, in bytes.

    Attributes:
        card: which.
        on_card: the most that is taken of it.
        capacity: what it has.
        fits: whether every GPU has room.
        is_close: whether one has it by less than plans were off on real cards.
        problem: why the step fails there; "" if it runs.
        change: what was changed of the step, in words; "" for nothing.
    """

    card: str
    on_card: Size
    capacity: Size
    fits: bool
    is_close: bool = False
    problem: str = ""
    change: str = ""

    @property
    def fit(self) -> Fit:
        """Whether it fits by more than plans were off on real cards, by less, or not."""
        return name_fit(self.fits, self.is_close)


def _find_smallest(cards: Sequence[OneCard]) -> OneCard | None:
    return next((card for card in cards if card.fit == "fits"), None)


@dataclass(frozen=True, slots=True)
class CardRow:
    """One thing to do with a model on several kinds of cards.

    Attributes:
        what: training, LoRA or inference.
        detail: how, in words.
        cards: from the smallest to the largest; where it does not fit as it is, with the change that comes nearest.
        problem: why it cannot be done on any of them; "" if it runs.
    """

    what: str
    detail: str
    cards: tuple[OneCard, ...] = ()
    problem: str = ""

    @property
    def smallest(self) -> OneCard | None:
        """The smallest on which it fits by more than plans were off; None if there is none."""
        return _find_smallest(self.cards)


@dataclass(frozen=True, slots=True)
class OnCards(Record):
    """The same step on several kinds of cards.

    Attributes:
        model: class of the model.
        gpus: how many of each.
        cards: from the smallest to the largest.
        rows: the step with a change where it needs one, and what else was asked for.
    """

    model: str
    gpus: Size
    cards: tuple[OneCard, ...]
    rows: tuple[CardRow, ...] = ()

    @property
    def smallest(self) -> OneCard | None:
        """The smallest on which it fits by more than plans were off; None if there is none."""
        return _find_smallest(self.cards)


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One thing that could be done, planned in full.

    Attributes:
        what: in words, such as `activation checkpointing`.
        code: what to write.
        cost: what is paid for it, in words.
        on_card: the most that a GPU then takes, in bytes.
        saved: bytes less than without it, on the GPU that takes most.
        fits: whether every GPU then has room.
        problem: why the step fails with it; "" if it runs.
        is_close: whether it fits by less than plans were off on real cards.
        allocated: bytes of that GPU that tensors then take at most.
        cached: bytes that the allocator then holds beside them.
        context: bytes that CUDA takes.
        capacity: bytes that the GPU has.
    """

    what: str
    code: str
    cost: str
    on_card: Size
    saved: int
    fits: bool
    problem: str = ""
    is_close: bool = False
    allocated: Size = 0
    cached: Size = 0
    context: Size = 0
    capacity: Size = 0

    @property
    def fit(self) -> Fit:
        """Whether it fits by more than plans were off on real cards, by less, or not."""
        return name_fit(self.fits, self.is_close)

    @property
    def is_over_by_cache(self) -> bool:
        """Whether it does not fit, and would if nothing were reserved beside what is allocated."""
        return not self.fits and 0 < self.allocated <= self.capacity - self.context


@dataclass(frozen=True, slots=True)
class Changes(Record):
    """What would make a step smaller.

    Attributes:
        model: class of the model.
        on_card: the most that a GPU takes without a change, in bytes.
        changes: those that fit, the cheapest first; those that fit by less than plans were off; those that do not, by
            what they save.
    """

    model: str
    on_card: Size
    changes: tuple[PlannedChange, ...]

    @property
    def cheapest(self) -> PlannedChange | None:
        """The cheapest change with which the step fits by more than plans were off; None if there is none."""
        return next((change for change in self.changes if change.fits and not change.is_close), None)

    @property
    def closest(self) -> PlannedChange | None:
        """The cheapest with which it fits by less than that; None if there is none."""
        return next((change for change in self.changes if change.fits and change.is_close), None)


@dataclass(frozen=True, slots=True)
class Answered:
    """What was asked of a plan, by kind; it is saved with it.

    Attributes:
        changes: of `cheapest_change`.
        batches: of `largest_batch`.
        sizes: of `sliders`.
        cards: of `on_cards`.
        generations: of `generation`.
    """

    changes: tuple[Changes, ...] = ()
    batches: tuple[LargestBatch, ...] = ()
    sizes: tuple[Fitted, ...] = ()
    cards: tuple[OnCards, ...] = ()
    generations: tuple[Generation, ...] = ()

    @property
    def all(self) -> tuple[Changes | LargestBatch | Fitted | OnCards | Generation, ...]:
        """All answers."""
        return (*self.changes, *self.batches, *self.sizes, *self.cards, *self.generations)


def group_answers(answers: Sequence[object]) -> Answered:
    """Answers by kind."""
    return Answered(
        tuple(each for each in answers if isinstance(each, Changes)),
        tuple(each for each in answers if isinstance(each, LargestBatch)),
        tuple(each for each in answers if isinstance(each, Fitted)),
        tuple(each for each in answers if isinstance(each, OnCards)),
        tuple(each for each in answers if isinstance(each, Generation)),
    )
