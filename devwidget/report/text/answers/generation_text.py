"""A generation as text: one sentence, then the lengths that were run."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import say
from devwidget.records.answers.generation import Generation
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.text.plan_text import fits_words


@presents("text", Generation)
def generation_text(generation: Generation) -> str:
    """What writing on takes."""
    return text_of(_lines(generation))


def _lines(generation: Generation) -> Iterator[str]:
    yield generation_sentence(generation)
    yield from columns(generation_rows(generation), right=range(5), indent="  ")
    yield _logits(generation.logits)
    size = format_bytes(round(generation.bytes_per_token))
    if generation.longest:
        yield say(
            "the cache grows by {size} for each token of the batch, and a GPU is full at {longest} tokens",
            size=size,
            longest=f"{generation.longest:,}",
        )
    else:
        yield say("the cache grows by {size} for each token of the batch", size=size)


def _logits(positions: int) -> str:
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
        tokens=counted(generation.new_tokens, "token"),
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
