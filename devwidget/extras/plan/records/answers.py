"""Answers to questions about a plan: other sizes, the largest batch, what would make a step smaller, generation, a layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.extras.plan.evidence.compared import Fit, judge_room, name_fit
from devwidget.records.device import DeviceId
from devwidget.records.loading.consistency import Wrong
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.schema.fields import Length, ProcessLocal, Size, process_local
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import Record


@dataclass(frozen=True, slots=True)
class AskedSize:
    """What a page of a plan can change of its step.

    Attributes:
        batch: samples; 0 where the batch has no size.
        length: tokens of each text; 0 where there is no text.
        card: the kind of card; "" where GPUs are a capacity and nothing else.
        memory: bytes of each GPU; empty where a card is named.
    """

    batch: Size = 0
    length: Size = 0
    card: str = ""
    memory: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """What a plan takes of the GPU with the least room, in bytes.

    Attributes:
        capacity: what that GPU has.
        allocated: the most that tensors take.
        fit: whether all GPUs of the plan have room by more than plans were off on real cards, one by less, or one has none.
        cached: what the allocator holds in addition.
        context: what CUDA takes.
    """

    capacity: Size
    allocated: Size
    fit: Fit
    cached: Size = 0
    context: Size = 0

    @property
    def on_card(self) -> int:
        """The most that is taken of the GPU."""
        return self.allocated + self.cached + self.context

    @property
    def is_over_by_cache(self) -> bool:
        """Whether it does not fit, and would if only the allocated bytes were reserved."""
        return self.fit == "does not fit" and 0 < self.allocated <= self.capacity - self.context


@dataclass(frozen=True, slots=True)
class Tried:
    """One plan that was run for an answer.

    Attributes:
        what: what was changed of the step, in words, such as `activation checkpointing`; "" for nothing.
        room: what is taken; nothing where the step fails.
        problem: why the step fails; "" if it runs.
        code: what to write for the change.
        cost: what is paid for it, in words.
        setting: batch, length and cards, as far as they were chosen for it.
    """

    what: str
    room: Room
    problem: str = ""
    code: str = ""
    cost: str = ""
    setting: AskedSize = AskedSize()

    @property
    def on_card(self) -> int:
        """The most that is taken of the GPU with the least room, in bytes."""
        return self.room.on_card

    @property
    def fit(self) -> Fit:
        """Whether it fits by more than plans were off on real cards, by less, or not."""
        return self.room.fit

    @property
    def fits(self) -> bool:
        """Whether every GPU has room."""
        return self.room.fit != "does not fit"


def find_first(tried: Sequence[Tried], fit: Fit = "fits") -> Tried | None:
    """Return the first that fits so; None if none does."""
    return next((each for each in tried if each.fit == fit), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question about a plan.

    Attributes:
        model: class of the model.
        tried: the plans that were run.
    """

    model: str
    tried: tuple[Tried, ...]


@dataclass(frozen=True, slots=True)
class Fitted(Answer):
    """Sizes around a step, batch after batch, in each the lengths.

    Attributes:
        asked: batch and length of the step itself.
    """

    asked: tuple[Size, Size] = (0, 0)

    @property
    def batches(self) -> tuple[int, ...]:
        """Samples of the plans."""
        return tuple(dict.fromkeys(each.setting.batch for each in self.tried))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each text in them; one alone where no text is in the batch, or none can be longer or shorter."""
        return tuple(dict.fromkeys(each.setting.length for each in self.tried))


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
        """The most that is predicted to be taken."""
        return self.reserved or self.peak

    @property
    def room(self) -> Room:
        """What is taken of the GPU that takes most."""
        return Room(self.capacity, self.taken, self.fit, context=self.context)

    @property
    def fit(self) -> Fit:
        """Whether it fits by more than plans were off on real cards, by less, or not."""
        return self.name_fit_of(max(self.peak, self.reserved))

    def name_fit_of(self, taken: int) -> Fit:
        """The same for so many bytes: reserved in addition to the context where a card is named, else allocated."""
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
        """Show the page with its buttons in a running notebook; a static page is saved with it for viewers without a kernel."""
        if self._page.value is None:
            raise NotImplementedError("a layout that was loaded is shown as it was saved")
        self._page.value(self)

    @property
    def tightest(self) -> PlacedGpu:
        """The GPU with the largest share taken."""
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
class LargestBatch(Answer, Record):
    """The largest batch that fits; it and the next larger one were run."""

    @property
    def runs(self) -> tuple[Tried, ...]:
        """The plans that were run, in their order."""
        return self.tried

    @property
    def size(self) -> int:
        """Samples; 0 if not even one fits."""
        return max((each.setting.batch for each in self.tried if each.fits), default=0)

    @property
    def safe_size(self) -> int:
        """Samples of the largest that fits by more than plans were off on real cards; 0 if none does."""
        return max((each.setting.batch for each in self.tried if each.fit == "fits"), default=0)

    @property
    def room(self) -> Room:
        """What it takes; what the least batch does where none fits."""
        by_size = {each.setting.batch: each.room for each in self.tried}
        return by_size[self.size or min(by_size)]

    @property
    def on_card(self) -> int:
        """The most that a GPU takes with it, in bytes; with the least batch where none fits."""
        return self.room.on_card

    @property
    def capacity(self) -> int:
        """Bytes of that GPU."""
        return self.room.capacity


@dataclass(frozen=True, slots=True)
class CardRow:
    """One thing to do with a model on several kinds of cards.

    Attributes:
        what: training, LoRA or inference.
        detail: how, in words.
        cards: from the smallest to the largest; where it does not fit unchanged, with the change that comes nearest.
        problem: why it cannot be done on any of them; "" if it runs.
    """

    what: str
    detail: str
    cards: tuple[Tried, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class OnCards(Answer, Record):
    """The same step on several kinds of cards, from the smallest to the largest.

    Attributes:
        gpus: how many of each.
        rows: the step with a change where it needs one, and what else was asked for.
    """

    gpus: Size = 1
    rows: tuple[CardRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Changes(Answer, Record):
    """What would make a step smaller: what fits, the cheapest first; what fits by less than plans were off; what does not.

    Attributes:
        without: what the step takes without a change.
    """

    without: Room

    @property
    def changes(self) -> tuple[Tried, ...]:
        """The changes, each planned in full."""
        return self.tried

    @property
    def on_card(self) -> int:
        """The most that a GPU takes without a change, in bytes."""
        return self.without.on_card

    @property
    def cheapest(self) -> Tried | None:
        """The cheapest change with which the step fits by more than plans were off; None if there is none."""
        return find_first(self.tried)

    @property
    def closest(self) -> Tried | None:
        """The cheapest with which it fits by less than that; None if there is none."""
        return find_first(self.tried, "fits by less")

    def saved_by(self, change: Tried) -> int:
        """Return the bytes that a change saves; less than zero if it takes more."""
        return 0 if change.problem else self.on_card - change.on_card


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
    def all(self) -> tuple[Answer | Generation, ...]:
        """All answers."""
        return (*self.changes, *self.batches, *self.sizes, *self.cards, *self.generations)


def group_answers(answers: Sequence[object]) -> Answered:
    """Answers by kind."""
    kinds = Changes, LargestBatch, Fitted, OnCards, Generation
    groups: list[Any] = [tuple(each for each in answers if isinstance(each, kind)) for kind in kinds]
    return Answered(*groups)


@register_check(Layout)
def _check_devices(layout: Layout) -> Wrong:
    if not layout.devices:
        yield "devices", Message("one GPU or more")
