"""The exception that ended a program: where it was raised, and what it shows about devices and dtypes without another run."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.held_memory import HeldMemory
from devwidget.records.schema.fields import Length
from devwidget.records.schema.record import Record
from devwidget.records.site import Site


@dataclass(frozen=True, slots=True)
class Failure:
    """What stopped the program.

    Attributes:
        kind: class name of the exception, such as `ValueError`.
        message: its text.
        site: the innermost line of user code, None if the traceback has none.
        module: path of the innermost module that raised it, None outside of the model.
        frames: `file:line in function: source` for each frame of the traceback, outermost first, without the frames
            that virtual GPUs add.
        out_of_memory: whether a device was out of memory.
    """

    kind: str
    message: str
    site: Site | None = None
    module: str | None = None
    frames: tuple[str, ...] = ()
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor on the failing line.

    Attributes:
        name: its expression on that line, else the operator's name for it.
        shape: current shape.
        dtype: current dtype.
        device: current device.
    """

    name: str
    shape: tuple[Length, ...]
    dtype: str
    device: DeviceId


@dataclass(frozen=True, slots=True)
class Explanation(Record):
    """An exception, explained.

    Attributes:
        error: `ErrorType: message`.
        verdict: one sentence: what was found, or why nothing was; "" if the exception is about something else.
        findings: the likely cause, as a trace would report it; empty if the exception is about something else.
        site: the user's line that failed.
        module: path of the innermost registered module running; None outside the model.
        values: the tensors on that line.
        notes: what only a run could show.
        memory: who kept memory in use, if a device was full.
    """

    error: str
    verdict: str
    findings: tuple[Finding, ...] = ()
    site: Site | None = None
    module: str | None = None
    values: tuple[Value, ...] = ()
    notes: tuple[str, ...] = ()
    memory: HeldMemory | None = None
