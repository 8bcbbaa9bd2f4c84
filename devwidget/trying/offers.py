"""Let a fix be verified later, as long as the program still holds what the step ran on."""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from devwidget.capture.object_fields import is_a, is_scalar
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Attempt, Finding, Fix
from devwidget.records.schema.fields import ProcessLocal
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace

AGAIN = "devwidget.trace(model, batch, verify=True)"
_MOST_CALLS = 8
_IMMORTAL = (type, types.BuiltinFunctionType, types.ModuleType)
Part = Callable[[], Any]


class _Gone(Exception):
    """A part of the step no longer exists."""


class LiveParts:
    """What a step ran on, by name, as weak references.

    Args:
        parts: model, batch, loss and other objects.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = {name: _hold_weakly(part) for name, part in parts.items()}

    def find_all(self) -> dict[str, Any]:
        """Return all parts.

        Raises:
            DevwidgetError: if a part no longer exists.
        """
        return {name: self._find_part(name) for name in self._parts}

    def make_attempt(self, run: Callable[..., Fix]) -> Attempt:
        """Return what verifies a fix on these parts by `run`."""
        return lambda fix: run(fix, **self.find_all())

    def _find_part(self, name: str) -> Any:
        try:
            return self._parts[name]()
        except _Gone:
            part = "batch" if name in ("args", "kwargs") else name
            raise _refuse_trial(Message("its {part} no longer exists: a trace keeps nothing alive", part=part)) from None


class SeenCalls:
    """The last call of each module that the program calls itself, as weak references."""

    def __init__(self) -> None:
        self._calls: dict[int, LiveParts] = {}

    def note_call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember the arguments of a call that has returned."""
        self._calls.pop(id(module), None)
        while len(self._calls) >= _MOST_CALLS:
            self._calls.pop(next(iter(self._calls)))
        self._calls[id(module)] = LiveParts({"model": module, "args": args, "kwargs": kwargs})

    def offer_trials(self, trace: Trace, run: Callable[..., Fix], failed: LiveParts | None) -> Trace:
        """Return the trace with edits that can be verified on one of the calls.

        Args:
            trace: the recording.
            run: verifies a fix on a model and its arguments.
            failed: the call whose exception ended the recording.
        """
        calls = list(self._calls.values())
        if failed is not None:
            calls.insert(0, failed)

        def verify_on_any(fix: Fix) -> Fix:
            """Verify a fix on the first call that still has the fault."""
            troubles = []
            for each in calls:
                try:
                    return each.make_attempt(run)(fix)
                except DevwidgetError as error:
                    troubles.append(error)
            if not troubles:
                raise _refuse_trial(Message("no module call was recorded"))
            raise troubles[0]

        return offer_step(trace, verify_on_any)


def _refuse_trial(why: str) -> DevwidgetError:
    return DevwidgetError(Message("this fix can no longer be tried"), why=why, instead=AGAIN)


def offer_step(trace: Trace, step: Attempt) -> Trace:
    """Return the trace with edits that can be verified on `step`."""
    attempt: ProcessLocal[Attempt] = ProcessLocal(step)
    return dataclasses.replace(trace, findings=tuple(_change_edits(each, _attempt=attempt) for each in trace.findings))


def mark_untried(trace: Trace, why: str) -> Trace:
    """Return the trace with a reason why its edits were not verified. Hints have no verification."""
    findings = []
    for finding in trace.findings:
        if finding.severity == "info":
            findings.append(finding)
        else:
            findings.append(_change_edits(finding, not_tried=why))
    return dataclasses.replace(trace, findings=tuple(findings))


def _change_edits(finding: Finding, **fields: Any) -> Finding:
    fixes = []
    for fix in finding.fixes:
        if fix.edits:
            fixes.append(dataclasses.replace(fix, **fields))
        else:
            fixes.append(fix)
    return dataclasses.replace(finding, fixes=tuple(fixes))


def _hold_weakly(value: Any) -> Part:
    """Return a function that finds a value again without keeping it alive. Containers are rebuilt."""
    kind = type(value)
    if is_scalar(value) or is_a(value, _IMMORTAL) or _holds_nothing(value):
        return lambda: value
    if kind is tuple or kind is list:
        parts = list(map(_hold_weakly, value))
        return lambda: kind(part() for part in parts)
    if kind is dict:
        keys, values = list(value), _hold_weakly(list(value.values()))
        return lambda: dict(zip(keys, values(), strict=True))
    if kind is types.MethodType:
        owner, function = _hold_weakly(value.__self__), value.__func__
        return lambda: types.MethodType(function, owner())
    return _refer_to(value)


def _holds_nothing(value: Any) -> bool:
    """Return whether a value is a function without closure, defaults or attributes."""
    if type(value) is not types.FunctionType:
        return False
    return not any((value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__))


def _refer_to(value: Any) -> Part:
    try:
        refer: Callable[[], Any] = weakref.ref(value)
    except TypeError:  # of a class that knows no weak references
        refer = _return_nothing

    def find() -> Any:
        found = refer()
        if found is None:
            raise _Gone
        return found

    return find


def _return_nothing() -> None:
    return None
