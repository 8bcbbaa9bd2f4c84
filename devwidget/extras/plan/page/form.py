"""The form above a live page of a plan: what its sliders reach, and the sizes that were run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from devwidget.extras.plan.records.answers import AskedSize, Fitted, LargestBatch
from devwidget.report.style.safe_text import displays_safely
from devwidget.report.style.units import format_bytes

Content = dict[str, Any]
_ONE_BY_ONE, _GROWTH, _LEAST = 16, 1.125, 64
_EIGHTHS = 32
"""A slider reaches up to four times what was asked for, in steps of an eighth."""
_GIB = 1 << 30
_WHOLE = 8 * _GIB
"""From here on memory is in whole GiB."""


@displays_safely
def form_content(questions: Any, setting: AskedSize) -> dict[str, Any]:
    """The state of the form, by the `WhatIf` of the plan that was asked for, and what is shown now; stops with their words."""
    own = questions.setting
    run = {own, *questions.tried, *_list_planned(questions.answers.values())}
    shown = questions.first if setting == own else questions.tried[setting]
    batches, lengths = {each.batch for each in run}, {each.length for each in run}
    return {
        "shown": _setting_content(setting),
        "batches": [(size, f"{size:,}") for size in _list_batches(own.batch, batches)],
        "lengths": [(size, f"{size:,}") for size in _list_eighths(own.length, lengths)],
        "cards": list(questions.cards),
        "memory": [
            (size, format_bytes(size)) for size in _list_memory({device.capacity for device in shown.devices}, setting.memory)
        ],
        "own": shown.devices[0].capacity,
        "gpus": len(shown.devices),
        "run": {"batch": sorted(batches), "length": sorted(lengths)},
    }


def _setting_content(setting: AskedSize) -> Content:
    return {"batch": setting.batch, "length": setting.length, "card": setting.card, "memory": list(setting.memory)}


def read_setting(given: dict[str, Any]) -> AskedSize:
    """What a page asks for; raise ValueError for what is none."""
    batch, length, card, memory = (given.get(name) for name in ("batch", "length", "card", "memory"))
    counts = [batch, length, *(memory if isinstance(memory, list) else [None])]
    if not all(type(each) is int and each >= 0 for each in counts) or not isinstance(card, str):
        raise ValueError("no such setting")
    return AskedSize(batch, length, card, tuple(memory))  # type: ignore[arg-type]


def _list_batches(own: int, run: set[int]) -> Iterator[int]:
    """One by one, then in steps that grow, with those that were run between them; none where a batch has no size."""
    if not own:
        return
    most, at, known = max(4 * own, 2 * max(run), _LEAST), 1, run | {own}
    while at <= most:
        following = at + 1 if at < _ONE_BY_ONE else round(at * _GROWTH)
        yield from sorted({at, *(each for each in known if at < each < following)})
        at = following


def _list_eighths(own: int, run: set[int]) -> list[int]:
    if own:
        return sorted({max(own * part // 8, 1) for part in range(1, _EIGHTHS + 1)} | run)
    return []


def _list_memory(capacities: set[int], chosen: tuple[int, ...]) -> list[int]:
    """Sizes around that of all GPUs; none where they are not alike."""
    if len(capacities) > 1:
        return []
    (own,) = capacities
    unit = _GIB if own >= _WHOLE else 1 << 20
    stops = {max(round(own * part / 8 / unit), 1) * unit for part in range(1, _EIGHTHS + 1)}
    return sorted(stops - {round(own / unit) * unit} | {own} | set(chosen[:1]))


def _list_planned(answers: Iterable[object]) -> Iterator[AskedSize]:
    for answer in answers:
        if isinstance(answer, Fitted | LargestBatch):
            yield from (tried.setting for tried in answer.tried)
