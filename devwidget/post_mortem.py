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
from devwidget.records.device import KINDS, PLACING_METHODS
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
_FULL = "OutOfMemoryError:", "MemoryError:"
EXPLAINED = Message(
    "devwidget explains errors about devices, dtypes, memory and DataParallel; of this one it gives the line, with the tensors "
    "that it names"
)
_WITHOUT_LINE = Message(
    "devwidget explains errors about devices, dtypes, memory and DataParallel; no line of your code is in the traceback of "
    "this one"
)
_PLACING = "|".join(sorted(PLACING_METHODS))
_ANSWERS: tuple[tuple[re.Pattern[str], Message], ...] = (
    (
        re.compile("device-side assert triggered"),
        Message(
            "a kernel stopped at an index or a number that it cannot take, here or at an earlier call: CUDA_LAUNCH_BLOCKING=1 "
            "in the environment shows which call it was, devwidget.simulate what is wrong there"
        ),
    ),
    (
        re.compile("Attempting to unscale FP16 gradients"),
        Message(
            "GradScaler unscales gradients of float32 alone: keep the parameters in float32, without `model.half()`, and let "
            "`torch.autocast` cast in forward"
        ),
    ),
    (
        re.compile("No inf checks were recorded"),
        Message(
            "no parameter of this optimizer has a gradient: `scaler.scale(loss).backward()` comes before `scaler.step`, and "
            "the optimizer needs the parameters of the model that made the loss"
        ),
    ),
    (
        re.compile(r"(unscale_\(\)|step\(\)) (has already been|is being) called"),
        Message("between two calls of `scaler.update()` GradScaler takes `unscale_` and `step` once for each optimizer"),
    ),
    (
        re.compile("unsafe to autocast"),
        Message(
            "autocast gives this loss float16, where its logarithm is not safe: leave out the sigmoid and use "
            "`binary_cross_entropy_with_logits` or `BCEWithLogitsLoss`"
        ),
    ),
    (
        re.compile("re-initialize CUDA in forked subprocess"),
        Message(
            "a process that was forked cannot use CUDA: move tensors to the GPU in the process that trains, or start the "
            "workers with `multiprocessing_context='spawn'`"
        ),
    ),
    (
        re.compile("Cannot access accelerator device when none is available"),
        Message("the call needs an accelerator, and this machine has none"),
    ),
    (
        re.compile(r"in DataLoader worker process|DataLoader worker \(pid"),
        Message(
            "a worker process of a DataLoader raised it, whose variables are gone: with `num_workers=0` it is raised in this "
            "process, and devwidget can read its line"
        ),
    ),
    (
        re.compile(rf"'(?!Tensor)(?P<kind>\w+)' object has no attribute '(?:{_PLACING}|device|is_cuda)'"),
        Message("only tensors and modules have that attribute: move the tensors in this `{kind}` one by one", kind=""),
    ),
    (
        re.compile(r"'(?P<kind>DataParallel|DistributedDataParallel)' object has no attribute '(?P<name>\w+)'"),
        Message("`{kind}` has the model as `.module`, and its attributes there: `.module.{name}`", kind="", name=""),
    ),
)
"""What is known of an exception by its words; names of groups are facts of the answer."""
_IN_REPLICA = Message(
    "a replica of DataParallel raised it: each replica gets a part of the batch, and gets numbers among the arguments, and "
    "what the model keeps, such as a hidden state, whole"
)
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
    if _find_answer(words) is not None:
        return True
    return CAUGHT.search(words) is not None or (kinds and (_ABOUT.search(words) is not None or '"module.' in words))


def _verdict(reading: Reading, findings: tuple[Finding, ...]) -> str:
    words = of_worker(reading.error)[0]
    if findings:
        return Message("this is the likely cause, read from the frames of the exception:")
    if words.startswith(_FULL):
        return Message("the device was full: devwidget.trace says what lived there at that line, devwidget.plan what would fit")
    answer = _find_answer(reading.error)
    if answer is not None:
        return answer
    if CAUGHT.search(reading.error) is not None:
        return _IN_REPLICA
    if not _ABOUT.search(words):
        if reading.site is not None:
            return EXPLAINED
        return _WITHOUT_LINE
    return _name_what_met(reading)


def _find_answer(words: str) -> Message | None:
    for pattern, answer in _ANSWERS:
        if (found := pattern.search(words)) is not None:
            return Message(answer.template, **found.groupdict())
    return None


def _name_what_met(reading: Reading) -> Message:
    """What is known of an error that names a device or a dtype, where no rule has found its cause."""
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
