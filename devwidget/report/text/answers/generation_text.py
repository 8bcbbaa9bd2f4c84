"""A generation as text: one sentence, then the lengths that were run."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.answers.generation import Generation
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes


@presents("text", Generation)
def generation_text(generation: Generation) -> str:
    """What writing on takes."""
    return text_of(_lines(generation))


def _lines(generation: Generation) -> Iterator[str]:
    yield generation_sentence(generation)
    yield from columns(generation_rows(generation), right=range(5), indent="  ")
    growth = f"the cache grows by {format_bytes(round(generation.bytes_per_token))} for each token of the batch"
    full = f", and a GPU is full at {generation.longest:,} tokens" if generation.longest else ""
    yield growth + full


def generation_sentence(generation: Generation) -> str:
    """The answer."""
    fits = "fits" if generation.fits else "does not fit"
    sizes = f"{format_bytes(generation.taken)} of {format_bytes(generation.capacity)}"
    tokens = counted(generation.new_tokens, "token")
    return f"{generation.model}: {tokens} after {generation.prompt:,} {fits} · {sizes}"


def generation_rows(generation: Generation) -> list[tuple[str, ...]]:
    """The lengths, under a heading."""
    on_card = ("reserved",) if generation.reserved else ()
    lengths = [
        (f"{at.length:,}", *map(format_bytes, (at.cache, at.prefill, at.decode, at.decode_reserved)[: 3 + len(on_card)]))
        for at in generation.runs
    ]
    return [("tokens", "cache", "reading them", "one more", *on_card), *lengths]
