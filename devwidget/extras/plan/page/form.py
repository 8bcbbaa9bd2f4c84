"""The form above a live page of a plan: what its sliders reach, and the plans that were run, from which it answers at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.records.answers import Answer, AskedSize, Room
from devwidget.extras.plan.records.plan import Plan, may_be_asked
from devwidget.report.style.safe_text import displays_safely

Figure = dict[str, Any]
_FITS: dict[Fit, str] = {"fits": "fits", "fits by less": "close", "does not fit": "over"}
"""Answer -> its name in the script."""
_ONE_BY_ONE, _GROWTH, _LEAST = 16, 1.125, 64
_EIGHTHS = 32
"""A slider reaches up to four times what was asked for, in steps of an eighth."""
_GIB = 1 << 30
_WHOLE = 8 * _GIB
"""From here on memory is in whole GiB."""


@displays_safely
def form_content(questions: Any, setting: AskedSize) -> dict[str, Any]:
    """The state of the form.

    Args:
        questions: the `WhatIf` of the plan that was asked for.
        setting: what is shown now.
    """
    plans = {questions.setting: may_be_asked(questions.first, questions), **questions.tried}
    figures = list(_list_figures(plans))
    own, shown = questions.setting, plans[setting]
    fullest = shown.tightest
    return {
        "shown": _setting_content(setting),
        "batches": list(_list_batches(own.batch, {figure["batch"] for figure in figures})),
        "lengths": _list_eighths(own.length, {figure["length"] for figure in figures}),
        "cards": list(questions.cards),
        "memory": _list_memory({device.capacity for device in shown.devices}, setting.memory),
        "gpus": len(shown.devices),
        "maps": shown.placement in ("auto", "device map"),
        "band": fullest.on_card_band[1] / max(fullest.on_card, 1),
        "figures": figures,
    }


def _setting_content(setting: AskedSize) -> Figure:
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


def _list_figures(plans: dict[AskedSize, Plan]) -> Iterator[Figure]:
    """Every plan that was run with nothing changed but its sizes and cards."""
    for setting, plan in plans.items():
        yield _make_figure(setting, plan.room)
        for answer in plan.answers:
            for tried in answer.tried if isinstance(answer, Answer) else ():
                if not (tried.what or tried.problem):
                    yield _make_figure(tried.setting, tried.room)


def _make_figure(setting: AskedSize, room: Room) -> Figure:
    """What is taken of the GPU that has the least room."""
    return {**_setting_content(setting), "taken": room.on_card, "capacity": room.capacity, "fit": _FITS[room.fit]}
