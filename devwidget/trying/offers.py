"""Offers: how a fix that was not tried is tried later, on what the step ran on, as long as somebody else keeps that."""

from __future__ import annotations

import dataclasses
import os
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from devwidget.capture.object_fields import is_exactly, is_scalar
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Attempt, Finding, Fix
from devwidget.records.schema.fields import ProcessLocal
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace

AGAIN = "devwidget.trace(model, batch, verify=True)"
_IMMORTAL = (type, types.BuiltinFunctionType, types.ModuleType)
Part = Callable[[], Any]


class _Gone(Exception):
    """Nobody else has kept it."""


class LiveStep:
    """What a step ran on, by name, held weakly.

    Args:
        parts: model, batch, loss and so on.
        run: tries a fix on them.
    """

    def __init__(self, parts: Mapping[str, Any], run: Callable[..., Fix]) -> None:
        self._parts, self._run, self._process = {name: _weakly(part) for name, part in parts.items()}, run, os.getpid()

    def __call__(self, fix: Fix) -> Fix:
        """See `Fix.try_it`."""
        if os.getpid() != self._process:
            raise _not_here(Message("this process was forked from the one that ran the step"))
        return self._run(fix, **{name: self._alive(name) for name in self._parts})

    def _alive(self, name: str) -> Any:
        try:
            return self._parts[name]()
        except _Gone:
            raise _not_here(Message("its {part} is gone: a trace keeps nothing alive", part=name)) from None


def _not_here(why: str) -> DevwidgetError:
    return DevwidgetError(Message("this fix cannot be tried any more"), why=why, instead=AGAIN)


def offered(trace: Trace, step: LiveStep) -> Trace:
    """The trace with edits that can be tried."""
    attempt: ProcessLocal[Attempt] = ProcessLocal(step)
    return _with_edits(trace, trace.findings, lambda fix: dataclasses.replace(fix, _attempt=attempt))


def left_untried(trace: Trace, why: str) -> Trace:
    """The trace with edits that were not tried for a reason; hints never are."""
    findings = [finding for finding in trace.findings if finding.severity != "info"]
    return _with_edits(trace, findings, lambda fix: dataclasses.replace(fix, not_tried=why))


def _with_edits(trace: Trace, findings: Iterable[Finding], change: Callable[[Fix], Fix]) -> Trace:
    chosen = set(map(id, findings))
    return dataclasses.replace(trace, findings=tuple(_changed(each, change, id(each) in chosen) for each in trace.findings))


def _changed(finding: Finding, change: Callable[[Fix], Fix], is_chosen: bool) -> Finding:
    if not is_chosen or not any(fix.edits for fix in finding.fixes):
        return finding
    return dataclasses.replace(finding, fixes=tuple(change(fix) if fix.edits else fix for fix in finding.fixes))


def _weakly(value: Any) -> Part:
    """Finds a value again without keeping it; its containers are made anew, which hold nothing else."""
    kind = type(value)
    if is_scalar(value) or isinstance(value, _IMMORTAL) or _holds_nothing(value):
        return lambda: value
    if is_exactly(value, (tuple, list)):
        parts = [_weakly(part) for part in value]
        return lambda: kind(part() for part in parts)
    if kind is dict:
        items = {key: _weakly(part) for key, part in value.items()}
        return lambda: {key: part() for key, part in items.items()}
    if kind is types.MethodType:
        owner, function = _weakly(value.__self__), value.__func__
        return lambda: types.MethodType(function, owner())
    return _referred(value)


def _holds_nothing(value: Any) -> bool:
    """A function without anything of its own: its names are those of its file."""
    return type(value) is types.FunctionType and not (
        value.__closure__ or value.__defaults__ or value.__kwdefaults__ or value.__dict__
    )


def _referred(value: Any) -> Part:
    try:
        refer: Callable[[], Any] = weakref.ref(value)
    except TypeError:  # of a class that knows no weak references
        refer = _nothing

    def find() -> Any:
        found = refer()
        if found is None:
            raise _Gone
        return found

    return find


def _nothing() -> None:
    return None
