"""`devwidget.explain`: the last exception, read from its traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from devwidget import gpus
from devwidget.capture.devices import read_memory
from devwidget.capture.explain.read_error import Reading, read_error
from devwidget.capture.explain.timed_cells import sources_at_hand
from devwidget.capture.explain.traceback_frames import CAUGHT, chain_of, list_user_sites
from devwidget.capture.memory.held_memory import find_full_device, find_memory_holders
from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code.call_sites import forget_edited_files
from devwidget.records.device import KINDS, PLACING_METHODS
from devwidget.records.errors import DevwidgetError, error_text, message, of_worker
from devwidget.records.explanation import Explanation, Value
from devwidget.records.finding import Finding, Fix
from devwidget.records.held_memory import DeviceHolders, HeldMemory
from devwidget.records.memory import read_refused_bytes
from devwidget.records.schema.message import Message, in_row, listed
from devwidget.records.site import has_page
from devwidget.records.trace import Trace
from devwidget.report.report_parts import Part
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import format_bytes
from devwidget.report.text.draw_text import draw_lines
from devwidget.report.text.finding_text import card_parts
from devwidget.rules import registry as rules
from devwidget.rules.kept_memory import find_kept_memory

if TYPE_CHECKING:
    from devwidget.panel.actions import AppliedFix
    from devwidget.panel.fix_card import FixCard

_NAMES_PLACE = re.compile(
    rf"(?i:\bdevices?\b|(?<![a-z])(?:{'|'.join(KINDS)})|\bcpu\b|meta tensor|dtype|scalar type|autocast|torch\.\w*tensor)"
    r"|\bB?Float(?:16|32|64)?\b|\b(?:Complex)?(?:Half|Double|Float)\b|\bLong\b"
)
"""Words for a device or a dtype in the exceptions of torch, which writes dtypes as `Half` and `BFloat16`."""
_FULL = re.compile(r"^\w*OutOfMemoryError:|^MemoryError:|\b\w+ out of memory\. Tried to allocate")
_STEP = Message("tensors of the failed step")
_PARAMETERS = Message("parameters")
_GRADIENTS = Message("gradients")
_STATE = Message("optimizer state")
_OTHERS = Message("other tensors")
_FREED = Message("values that the failed call did not keep in variables")
_LEAST_PART = 0.01
"""Share of the memory in use below which a part is not named."""
_PLACING = "|".join(sorted(PLACING_METHODS))
_ANSWERS: tuple[tuple[re.Pattern[str], Message], ...] = (
    (
        re.compile("device-side assert triggered"),
        Message(
            "a kernel got an invalid index or number, in this call or an earlier one: set CUDA_LAUNCH_BLOCKING=1 "
            "in the environment to see the call, or use devwidget.simulate to see what is wrong there"
        ),
    ),
    (
        re.compile("Attempting to unscale FP16 gradients"),
        Message(
            "GradScaler unscales only float32 gradients: keep the parameters in float32, without `model.half()`, "
            "and let `torch.autocast` cast in forward"
        ),
    ),
    (
        re.compile("No inf checks were recorded|Attempted step but _scale is None"),
        Message(
            "no parameter of this optimizer has a gradient: call `scaler.scale(loss).backward()` before "
            "`scaler.step`, and pass the optimizer the parameters of the model that computed the loss"
        ),
    ),
    (
        re.compile(r"(unscale_\(\)|step\(\)) (has already been|is being) called"),
        Message("call `unscale_` and `step` at most once per optimizer between two calls of `scaler.update()`"),
    ),
    (
        re.compile("unsafe to autocast"),
        Message(
            "the gradient of this loss does not fit into float16: remove the sigmoid and use "
            "`binary_cross_entropy_with_logits` or `BCEWithLogitsLoss`"
        ),
    ),
    (
        re.compile("re-initialize CUDA in forked subprocess"),
        Message(
            "a forked process cannot use CUDA: move tensors to the GPU in the training process, or start the "
            "workers with `multiprocessing_context='spawn'`"
        ),
    ),
    (
        re.compile("Cannot access accelerator device when none is available"),
        Message("the call needs an accelerator, and this machine has none"),
    ),
    (
        re.compile("MPS framework doesn't support float64"),
        Message("MPS has no float64: cast to float32 before the move, as in `x.float().to('mps')`"),
    ),
    (
        re.compile(r"result type (?P<result>\w+) can't be cast to the desired output type (?P<into>\w+)"),
        Message("a {result} result cannot be written into a {into} tensor: cast that tensor first", result="", into=""),
    ),
    (
        re.compile("Only Tensors of floating point and complex dtype can require gradients"),
        Message("integers have no gradient: cast to float32, or pass `requires_grad=False`"),
    ),
    (
        re.compile(r"cannot assign '[\w.]+' as parameter '(?P<name>\w+)'"),
        Message(
            "`{name}` is a parameter and takes no plain tensor: assign `nn.Parameter(tensor)`, on the device of the module, "
            "or copy the values into it with `module.{name}.data.copy_(tensor)`",
            name="",
        ),
    ),
    (
        re.compile(r"in DataLoader worker process|DataLoader worker \(pid"),
        Message(
            "a DataLoader worker raised it, and its variables are lost: set `num_workers=0` to raise it in this "
            "process, where devwidget can read its line"
        ),
    ),
    (
        re.compile(rf"'(?!Tensor)(?P<kind>\w+)' object has no attribute '(?:{_PLACING}|device|is_cuda)'"),
        Message("only tensors and modules have this attribute: move each tensor in the `{kind}`", kind=""),
    ),
    (
        re.compile(r"'(?P<kind>DataParallel|DistributedDataParallel)' object has no attribute '(?P<name>\w+)'"),
        Message("`{kind}` keeps the model in `.module`: use `.module.{name}`", kind="", name=""),
    ),
)
"""Explanations by the text of an exception; named groups are facts of the message."""
_cards: dict[str, FixCard] = {}
"""The card of each cell that raised, by the id of the cell: when it raises again, the page has dropped the old one."""
_IN_REPLICA = Message(
    "a DataParallel replica raised it: each replica gets a part of the batch, but the whole of numeric "
    "arguments and of state that the model keeps, such as a hidden state"
)
_BESIDE_REPLICA = Message(
    "a DataParallel replica met tensors of two devices: on its GPU are its part of the batch, the parameters and the buffers, "
    "but no tensor in a plain attribute, and none that `forward` creates without `device=`"
)
_ALL = Message(
    "an exception shows only the first fault; devwidget.trace(model, batch), or record(heal=True) around a loop, finds all"
)


def explain(error: object | None) -> Explanation:
    """See `devwidget.explain`."""
    found = error if error is not None else last_error()
    if found is None:
        raise DevwidgetError(
            Message("there is no exception to explain: none is being handled, and none has ended a cell or a program"),
            why=Message("Python drops an exception at the end of the `except` block that caught it"),
            instead=Message("call devwidget.explain(error) inside the `except` block, or run the cell without it"),
        )
    if not is_a(found, BaseException):
        hint = "`except Exception as error: devwidget.explain(error)`"
        raise DevwidgetError(Message("expected an exception, got a `{kind}`", kind=type(found).__name__), instead=hint)
    forget_edited_files()
    with sources_at_hand(found):
        reading = read_error(found)
        judged = rules.judge(Trace(faults=reading.faults, error=reading.error))
        full = read_full_memory(found, sys._getframe(1))
    findings = judged.findings if reading.outdated else judged.findings + full.findings
    return Explanation(
        error=reading.error,
        verdict=_verdict(found, reading, findings, full.device),
        findings=findings,
        site=reading.site,
        module=reading.module,
        values=tuple(Value(v.expression, v.shape, v.dtype, v.device) for v in reading.values),
        notes=tuple(_notes(reading, judged.findings)),
        memory=full.held,
    )


class FullMemory(NamedTuple):
    """Who kept memory in use when a device was full, the device, and what was kept needlessly; nothing after another error."""

    held: HeldMemory | None = None
    device: DeviceHolders | None = None
    findings: tuple[Finding, ...] = ()


def read_full_memory(error: BaseException, frame: FrameType) -> FullMemory:
    """Read who keeps memory in use after an out-of-memory error.

    Args:
        error: the exception, or one that another raised again.
        frame: innermost running frame of the user.
    """
    cause = next((each for each in chain_of(error) if _FULL.search(error_text(each)) is not None), None)
    if cause is None:
        return FullMemory()
    machine = gpus.active()
    held = find_memory_holders(read_memory(machine.gpus if machine is not None else 0), error=cause, frame=frame)
    device = find_full_device(held, read_refused_bytes(error_text(cause)))
    if device is None:
        return FullMemory(held)
    sites = list_user_sites(cause)
    found, _ = rules.run_rule("kept-memory", lambda each: find_kept_memory(each, sites), device)
    return FullMemory(held, device, tuple(found))


def last_error() -> BaseException | None:
    """Return the exception being handled, else the last uncaught one."""
    handled = sys.exception()
    if handled is not None and _is_being_handled(handled):
        return handled
    found = (getattr(sys, "last_exc", None), getattr(sys, "last_value", None))
    return next((error for error in found if error is not None), None)  # not `or`: an exception may have a `__bool__`


def _is_being_handled(error: BaseException) -> bool:
    """Return whether the function that caught it still runs: Ctrl-C at the end of an `except` block keeps it forever."""
    caught = error.__traceback__
    frame: FrameType | None = sys._getframe()
    while frame is not None and caught is not None:
        if frame is caught.tb_frame:
            return True
        frame = frame.f_back
    return caught is None


def is_about_placement(error: BaseException) -> bool:
    """Return whether `explain` has more to say of an exception than its line and its tensors."""
    words = message(error)
    if _find_answer(words) is not None or CAUGHT.search(words) is not None or _names_placement(error, words):
        return True
    with sources_at_hand(error):
        return bool(read_error(error).faults)


def is_answered(explanation: Explanation) -> bool:
    """Return whether an explanation shows more than that the exception names a device or a dtype."""
    words = explanation.error
    known = explanation.findings or explanation.values or explanation.memory is not None
    return bool(known) or _find_answer(words) is not None or CAUGHT.search(words) is not None


def show_answer(explanation: Explanation, cell: str, prepare: Callable[[Fix], AppliedFix]) -> None:
    """Show an answer below the exception of a cell; print it where no page shows widgets."""

    def parts() -> list[Part]:
        return list(card_parts(explanation))

    if not has_page():
        print(text_of(draw_lines(parts())))
        return
    from IPython.display import display

    from devwidget.panel.fix_card import FixCard

    fixes = [fix for finding in explanation.findings[:1] for fix in finding.fixes[:1]]
    card = FixCard(parts, next(iter(fixes), None), prepare, folds=bool(explanation.findings))
    if cell in _cards:
        _cards.pop(cell).close()
    if cell:
        _cards[cell] = card
    display(card)


def _names_placement(error: object, words: str) -> bool:
    """Return whether an exception of torch names a device or a dtype. An OSError has other devices in mind."""
    kinds = is_a(error, (RuntimeError, TypeError, ValueError, AssertionError, IndexError))
    return kinds and (_NAMES_PLACE.search(words) is not None or '"module.' in words)


def _verdict(error: object, reading: Reading, findings: tuple[Finding, ...], full: DeviceHolders | None) -> str:
    words = of_worker(reading.error)[0]
    if reading.outdated:
        return Message("`{file}` has changed since Python loaded it: reload it, or restart the kernel", file=reading.outdated)
    if findings:
        return Message("likely cause, read from the frames of the exception:")
    if full is not None:
        refused = read_refused_bytes(words)
        return _describe_full(full, refused.allocated if refused is not None else 0)
    if _FULL.search(words) is not None:  # of the host
        return Message(
            "the device was out of memory: devwidget.trace shows what was allocated at that line, devwidget.plan what would fit"
        )
    answer = _find_answer(reading.error)
    if answer is not None:
        return answer
    if CAUGHT.search(reading.error) is not None:
        return _BESIDE_REPLICA if "same device" in words else _IN_REPLICA
    if _names_placement(error, words):
        return _name_what_met(reading)
    return ""


def _describe_full(full: DeviceHolders, allocated: int) -> Message:
    """Say what a full device held, if nothing was kept needlessly.

    Args:
        full: what it holds now.
        allocated: bytes in use when it failed; 0 if unknown.
    """
    holders = full.holders
    rest = [(each.place, each.bytes - each.parameters - each.gradients - each.optimizer) for each in holders]
    sizes = {
        _STEP: sum(size for place, size in rest if place in ("local", "traceback")),
        _PARAMETERS: sum(each.parameters for each in holders),
        _GRADIENTS: sum(each.gradients for each in holders),
        _STATE: sum(each.optimizer for each in holders),
    }
    sizes[_OTHERS] = full.allocated - sum(sizes.values())
    sizes[_FREED] = allocated - full.allocated
    most = sorted(sizes, key=lambda words: -sizes[words])
    least = _LEAST_PART * full.allocated
    parts = [Message("{size} of {part}", size=format_bytes(sizes[each]), part=each) for each in most if sizes[each] > least]
    facts = {"device": full.device, "parts": in_row(parts)}
    if most[0] in (_STEP, _FREED):
        return Message(
            "{device} was full: {parts}; a smaller batch, `torch.utils.checkpoint` or `torch.autocast` needs less", **facts
        )
    if most[0] is _OTHERS:
        return Message("{device} was full: {parts}", **facts)
    return Message("{device} was full: {parts}; devwidget.plan shows what fits", **facts)


def _find_answer(words: str) -> Message | None:
    for pattern, answer in _ANSWERS:
        if (found := pattern.search(words)) is not None:
            return Message(answer.template, **found.groupdict())
    return None


def _name_what_met(reading: Reading) -> Message:
    """Describe an error that names a device or a dtype when no rule found its cause."""
    if reading.site is None:
        return Message("the error names a device or a dtype, but its traceback contains no line of your code")
    met = {str(value.device) for value in reading.values}
    if len(met) == 1:
        dtypes = {value.dtype for value in reading.values}
        met = {dtype for dtype in dtypes if re.search("float|complex", dtype)}
    if len(met) > 1:
        words = listed(sorted(met))
        return Message("its line uses tensors of {met}; which one is intended is unknown", met=words)
    return Message("the error names a device or a dtype, but the values that still exist do not show which one was wrong")


def _notes(reading: Reading, findings: tuple[Finding, ...]) -> Iterator[str]:
    if reading.raised:
        yield Message("finally raised: {error}", error=reading.raised)
    if reading.from_worker:
        yield Message(
            "raised in a DataParallel worker, whose variables are lost: run the code again after `%load_ext devwidget`, or "
            "inside of `with devwidget.record()`"
        )
    for finding in findings:
        is_cured = any(fix.edits for fix in finding.fixes)
        kinds = "replica-state-lost", "parallel-io", "unsupported-on-device"
        if finding.birth is None and not is_cured and finding.kind not in kinds:
            yield Message("the line that created or moved the tensor is no longer in these frames; trace a run to find it")
    if any(fault.phase == "backward" for fault in reading.faults):
        yield Message("the forward line of this gradient is known only while the step runs")
    if findings:
        yield _ALL
    yield from (Message("not checked: {rules}", rules=trouble) for trouble in reading.troubles)
