"""`devwidget.explain`: the last exception, read from its traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import FrameType

from devwidget.capture.explain.read_error import Reading, read_error
from devwidget.capture.explain.replica_errors import CAUGHT
from devwidget.capture.explain.timed_cells import sources_at_hand
from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code.call_sites import forget_edited_files
from devwidget.records.device import KINDS
from devwidget.records.errors import DevwidgetError, message, of_worker
from devwidget.records.explanation import Explanation, Value
from devwidget.records.finding import Finding
from devwidget.records.schema.message import Message, listed
from devwidget.records.trace import Trace
from devwidget.rules import registry as rules

_ABOUT = re.compile(
    rf"device|dtype|scalar type|(?<![a-z])(?:{'|'.join(KINDS)})|\bcpu\b|meta tensor|to numpy|has the same type|non-leaf|CPU",
    re.IGNORECASE,
)
_STOPPED = "device-side assert triggered"
_FULL = "OutOfMemoryError:", "MemoryError:"
_ALL = Message(
    "an exception shows the first fault only; devwidget.trace(model, batch), around a loop record(heal=True), finds all"
)


def explain(error: object | None) -> Explanation:
    """See `devwidget.explain`."""
    found = error if error is not None else last_error()
    if found is None:
        raise DevwidgetError(
            Message("no exception is being handled, and none has ended a cell or a program yet"),
            why=Message("Python forgets an exception at the end of the `except` that caught it"),
            instead=Message("devwidget.explain(error) inside of that `except`, or the cell again without it"),
        )
    if not is_a(found, BaseException):
        hint = "`except Exception as error: devwidget.explain(error)`"
        raise DevwidgetError(Message("this is a `{kind}`, not an exception", kind=type(found).__name__), instead=hint)
    forget_edited_files()
    with sources_at_hand(found):
        reading = read_error(found)
        judged = rules.judge(Trace(faults=reading.faults, error=reading.error))
    return Explanation(
        error=reading.error,
        verdict=_verdict(reading, judged.findings),
        findings=judged.findings,
        site=reading.site,
        module=reading.module,
        values=tuple(Value(v.expression, v.shape, v.dtype, v.device) for v in reading.values),
        notes=tuple(_notes(reading, judged.findings)),
    )


def last_error() -> BaseException | None:
    """The exception being handled, else the last one that nobody caught."""
    handled = sys.exception()
    if handled is not None and _is_being_handled(handled):
        return handled
    found = (getattr(sys, "last_exc", None), getattr(sys, "last_value", None))
    return next((error for error in found if error is not None), None)  # not `or`: an exception may have a `__bool__`


def _is_being_handled(error: BaseException) -> bool:
    """Whether the function that caught it still runs: Ctrl-C at the end of an `except` leaves an exception there for ever."""
    caught = error.__traceback__
    frame: FrameType | None = sys._getframe()
    while frame is not None and caught is not None:
        if frame is caught.tb_frame:
            return True
        frame = frame.f_back
    return caught is None


def is_about_placement(error: BaseException) -> bool:
    """A quick look at the words of an exception: is it worth an explanation?"""
    kinds = is_a(error, (RuntimeError, TypeError, ValueError, AssertionError))  # an OSError has other devices in mind
    words = message(error)
    return CAUGHT.search(words) is not None or (kinds and (_ABOUT.search(words) is not None or '"module.' in words))


def _verdict(reading: Reading, findings: tuple[Finding, ...]) -> str:
    if findings:
        return Message("this is the likely cause, read from the frames of the exception:")
    if of_worker(reading.error)[0].startswith(_FULL):
        return Message("the device was full: devwidget.trace says what lived there at that line, devwidget.plan what would fit")
    if _STOPPED in of_worker(reading.error)[0]:
        return Message(
            "a kernel stopped at an index or a number that it cannot take, here or at an earlier call: CUDA_LAUNCH_BLOCKING=1 "
            "in the environment shows which call it was, devwidget.simulate what is wrong there"
        )
    if not _ABOUT.search(of_worker(reading.error)[0]):
        return Message("this exception is not about devices or dtypes")
    if reading.site is None:
        return Message("it names a device or a dtype, and no line of your code is in its traceback")
    devices, dtypes = ({str(getattr(v, name)) for v in reading.values} for name in ("device", "dtype"))
    met = devices if len(devices) > 1 else dtypes
    if len(met) > 1:
        words = listed(sorted(met))
        return Message("tensors of {met} meet on its line, and nothing here tells which of them is meant", met=words)
    return Message("it names a device or a dtype, and the values that still exist do not show which one was wrong")


def _notes(reading: Reading, findings: tuple[Finding, ...]) -> Iterator[str]:
    if reading.raised:
        yield Message("what was raised in the end: {error}", error=reading.raised)
    if reading.from_worker:
        yield Message("raised in a DataParallel worker, whose variables are gone: only the text of its traceback is left")
    for finding in findings:
        if finding.birth is None and finding.kind not in ("replica-state-lost", "unsupported-on-device"):
            yield Message("the line that made or placed the tensor is not in these frames any more; only a run can tell")
    if any(fault.phase == "backward" for fault in reading.faults):
        yield Message("the forward line that this gradient belongs to is known only while it runs")
    if findings:
        yield _ALL
    yield from (Message("not checked: {rules}", rules=trouble) for trouble in reading.troubles)
