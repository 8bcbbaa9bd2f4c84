"""Generation: what a model takes while it writes on, one token after the other, with a cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.schema.bounds import Size
from devwidget.records.schema.record import Record


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
        """By the last token, as far as it is predicted."""
        return self.decode_reserved or self.decode


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

    @property
    def taken(self) -> int:
        """The most that is taken, as far as it is predicted."""
        return self.reserved or self.peak
