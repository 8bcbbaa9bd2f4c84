"""Copies between devices, and waits: operators that hand a value, or a size that depends on values, to the host."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.modes.dispatch_mode import COPIES, MASKED, WAITING, WORDS, is_carried
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.recording.waits import FORMATS
from devwidget.profiler_engine.event_tree import EventWalk, Operator, Turn, find_tensors, iterate_below
from devwidget.profiler_engine.places import EventPlace, SiteReader, site_of
from devwidget.records.site import Site
from devwidget.records.trace import Phase, Wait

_STEP = frozenset({"forward", "loss", "backward", "optimizer"})
_WAITING_SOMETIMES = frozenset({*COPIES, *MASKED, *WAITING, "repeat_interleave"})
_CALLED = re.compile(r"<built-in method (\w+) of (?:Tensor|type) object|torch/_tensor\.py\(\d+\): (\w+)")
"""How the profiler names a method of tensors and a function of torch."""
_OF_PYTHON = {"index": "__getitem__", "index_put_": "__setitem__", "is_nonzero": "__bool__"}
"""What Python calls where the profiler sees no call."""


class Copy(NamedTuple):
    """What goes where, as the profiler knows it; `is_later`: the host does not wait."""

    source: Any
    target: Any
    is_later: bool


def find_ends(operator: Operator) -> Copy | None:
    """What an operator copies that casts or moves."""
    if operator.name in COPIES:
        for each in iterate_below(operator.event):
            if each.name == "aten::copy_":
                inputs = each.extra_fields.inputs
                target, source = list(find_tensors(inputs))[:2]
                return Copy(source, target, inputs[2:3] == [True])
    return None


def find_copy(operator: Operator) -> Copy | None:
    """What an operator copies to another device."""
    ends = find_ends(operator)
    return ends if ends is not None and is_carried(ends.source.device, ends.target.device) else None


class _Turns:
    """The turns of the program. Between a model and `backward` a loss is computed, and in the loop around it is looked at."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._turns = sorted(turns)
        self._numbers = [turn.number for turn in self._turns]
        after_backward = (number == 0 or self._turns[number - 1].is_backward for number in range(len(self._turns)))
        self._callers = {turn.function for turn, is_first in zip(self._turns, after_backward, strict=True) if is_first}
        self._sites = SiteReader()

    def find_turn(self, number: int) -> int:
        """How many had begun."""
        return bisect.bisect(self._numbers, number)

    def decide_phase(self, operator: Operator) -> tuple[Phase, bool]:
        """The part of the step to which a wait belongs, and whether the step itself waits."""
        place = operator.place
        phase = place.phase or "other"
        if phase != "loss" or place.calls:
            return phase, place.calls > 0 or phase in _STEP
        following = self._turns[self.find_turn(operator.number) :][:1]
        if not any(turn.is_backward for turn in following):
            return "other", False
        function = self._sites.find_function(operator.event)
        return phase, function not in self._callers and function != following[0].function


def fold_waits(walk: EventWalk) -> Iterator[Wait]:
    """Each line that waits, with what it waits for."""
    turns, folded = _Turns(walk.turns), dict[Wait, tuple[list[Any], set[int]]]()
    for operator in walk.operators:
        device = _find_awaited(operator)
        if device is not None:
            phase, in_step = turns.decide_phase(operator)
            wait = _make_wait(operator, device, phase, in_step)
            calls, in_turns = folded.setdefault(wait, ([], set()))
            if wait.call not in FORMATS or not calls or calls[-1] is not operator.place.call:
                calls.append(operator.place.call)
            in_turns.add(turns.find_turn(operator.number))
    for wait, (calls, in_turns) in folded.items():
        facts = {name: getattr(wait, name) for name in wait.__slots__}
        yield Wait(**facts | {"count": len(calls), "turns": len(in_turns)})


def _make_wait(operator: Operator, device: torch.device, phase: Phase, in_step: bool) -> Wait:
    place = operator.place
    library, called = place.library, None
    site = site_of(place)
    if library is not None and place.site is not None:
        site, called = Site(library.file, library.line, library.text), place.site
    call = _name_call(operator, place)
    return Wait(call, device_id(device), place.module, phase, site, library is not None, in_step=in_step, called=called)


def _name_call(operator: Operator, place: EventPlace) -> str:
    """What the program called; the operator, where the profiler sees no call of it."""
    name = WORDS.get(operator.name, operator.name)
    if place.call is not None and (named := _CALLED.match(place.call.name)) is not None:
        return str(named[1] or named[2])
    return name if place.phase == "backward" or place.is_in_torch else _name_in_python(operator.event, name)


def _name_in_python(event: Any, name: str) -> str:
    names = [name]
    while (event := event.parent) is not None and event.name.startswith("aten::"):
        names.append(event.name.removeprefix("aten::"))
    return next((_OF_PYTHON[each] for each in names if each in _OF_PYTHON), name)


def _find_awaited(operator: Operator) -> torch.device | None:
    name, tensors = operator.name, operator.tensors
    if name not in _WAITING_SOMETIMES:
        return None
    if (copy := find_copy(operator)) is not None:
        waits = copy.target.device.type == "cpu" and is_accelerator(copy.source.device) and not copy.is_later
        return copy.source.device if waits else None
    if not tensors or not is_accelerator(tensors[0].device) or not _is_waiting(operator):
        return None
    return tensors[0].device if name not in MASKED or _has_mask(operator) else None


def _is_waiting(operator: Operator) -> bool:
    """Whether the host waits, if the operator is given what makes it."""
    if operator.name == "repeat_interleave":
        return bool(operator.event.extra_fields.inputs[1:2] == [None])  # else the size is known
    return operator.name in WAITING or operator.name in MASKED


def _has_mask(operator: Operator) -> bool:
    """Whether a mask selects, which is searched for what is not zero: the profiler is not told what is in a list of indices."""
    return any(each.name == "aten::nonzero" for each in iterate_below(operator.event))
