"""Find the fault behind an exception: first from the library frames, then from the call that failed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType, TracebackType

import torch

from devwidget.capture import devices
from devwidget.capture.explain import library_frames
from devwidget.capture.explain.error_context import (
    ErrorContext,
    ModuleCalled,
    called_module,
    context_of,
    failed_calls,
    run_readers,
)
from devwidget.capture.explain.traceback_frames import (
    CAUGHT,
    IN_LOADER,
    callers_of,
    chain_of,
    site_in_worker,
    traceback_frames,
)
from devwidget.capture.faults.devices import report_absent
from devwidget.capture.faults.failed_call import NOT_OURS, arguments
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.faults.operands import HOST_WORDS
from devwidget.capture.modes.function_mode import FAMILIES
from devwidget.capture.object_fields import is_among
from devwidget.capture.precision import lacking_dtype
from devwidget.capture.recording.event_log import device_id, format_dtype, lost_operand, operand_of
from devwidget.capture.source_code.call_sites import call_text, forget_sites, raw_site, site_of, to_site
from devwidget.capture.source_code.expressions import (
    UNKNOWN,
    Scope,
    device_requested,
    factory_of,
    failing_call,
    means,
    operands_of,
    running_node,
)
from devwidget.capture.source_code.provenance import Origin
from devwidget.capture.source_code.source_files import is_outdated
from devwidget.capture.source_code.stack import is_users_code, steps_down
from devwidget.capture.source_code.written_moves import find_discarded_move
from devwidget.capture.tensors import is_module, is_tensor, own_tensors
from devwidget.records.device import CUDA, DEVICE_NAME, KINDS
from devwidget.records.errors import error_text, message
from devwidget.records.fault_details import FaultDetail, NoKernel
from devwidget.records.site import Site, file_label
from devwidget.records.syntax import names_in, parsed_statement
from devwidget.records.trace import Family, Fault, Operand

MOST_VALUES = 24


@dataclass(frozen=True, slots=True)
class Reading:
    """What an exception shows without running the code again.

    Attributes:
        error: `ErrorType: message`.
        site: the user's line that failed.
        module: path of the innermost registered module running.
        faults: recognised faults, as in a recording.
        values: tensors on that line.
        troubles: errors of devwidget itself.
        from_worker: it was raised in a worker thread whose frames no longer exist.
        raised: the exception that was finally raised, if it is another one.
        outdated: the file of the line, if it has been edited since Python loaded it; nothing is read from it then.
    """

    error: str
    site: Site | None
    module: str | None
    faults: tuple[Fault, ...]
    values: tuple[Operand, ...]
    troubles: tuple[str, ...]
    from_worker: bool
    raised: str = ""
    outdated: str = ""


def read_error(error: BaseException) -> Reading:
    """Read an exception, or the first one in its chain of causes that is about devices or dtypes."""
    readings, outer = list[Reading](), list[TracebackType]()
    for each in chain_of(error, hidden=True):
        above = callers_of(each, outer)
        outer = [*above, *steps_down(each.__traceback__)]
        readings.append(_read(each, above))
        if readings[-1].faults:
            if len(readings) == 1:
                return readings[0]
            return replace(readings[-1], raised=readings[0].error)
    return readings[0]


def outermost_call(error: BaseException) -> ModuleCalled | None:
    """Return the module that the program was calling when it failed, with its arguments; None outside of modules."""
    frames = [frame for each in chain_of(error) for frame in traceback_frames(each.__traceback__)]
    return next(filter(None, map(called_module, frames)), None)


def _read(error: BaseException, above: Sequence[TracebackType]) -> Reading:
    context = context_of(error, above)
    if context.user is not None and is_outdated(context.user.f_code):
        return _refuse_to_read(context, context.user)
    in_worker = CAUGHT.search(message(error)) is not None
    is_text_alone = in_worker and error is context.error
    try:
        run_readers(context, library_frames.ALL if is_text_alone else (*library_frames.ALL, *_OF_LINES))
        faults = tuple(replace(fault, in_replica=in_worker) for fault in context.state.log.faults)
        values = tuple(_values(context, faults))
        site = site_in_worker(message(error)) if in_worker or IN_LOADER.search(message(error)) else None
        if site is None and context.user is not None:
            site = to_site(site_of(context.user))
    finally:
        forget_sites()
    module = context.state.tracker.module
    troubles = tuple(context.state.log.troubles)
    return Reading(error_text(context.raised), site, module, faults, values, troubles, is_text_alone)


def _refuse_to_read(context: ErrorContext, user: FrameType) -> Reading:
    """Return a reading without faults: the line that failed is one of the old file."""
    file = user.f_code.co_filename
    site = Site(file, user.f_lineno, "", user.f_code.co_name)
    return Reading(context.error_text, site, None, (), (), (), from_worker=False, outdated=file_label(file))


def _failed_call(context: ErrorContext) -> None:
    """Record the innermost call whose arguments explain the exception, checked as in a recording."""
    for failed in failed_calls(context):
        for handle in FAMILIES:
            if handle(failed) is not NOT_OURS or context.state.log.faults:
                return


_NOT_LINKED = re.compile(r"not linked with support for (\w+) devices")
_NO_CUDA = re.compile(
    r"not compiled with CUDA|compiled without CUDA|without ATen_cuda library|has no attribute '_cuda_\w+'|"
    r"No CUDA GPUs are available|torch\.cuda\.\w+ requires CUDA support"
)


def _missing_build(context: ErrorContext) -> None:
    """Report a call without a device, such as `net.cuda()`, that needs an accelerator which is missing or unsupported."""
    words = message(context.error)
    linked = _NOT_LINKED.search(words)
    kind = CUDA.type if _NO_CUDA.search(words) else ""
    if linked is not None:
        kind = linked[1]
    if context.user is None or kind not in KINDS or devices.count_of(kind):
        return
    called = (context.below[-1] if context.below else context.user).f_code.co_name
    report_absent(context.state, called, site_of(context.user), requested=kind, error=context.error_text)


def _by_its_words(context: ErrorContext) -> None:
    """Use the device in the message for an operand that was computed on the line and no longer exists."""
    named, target = devices_named(context)
    if target is None or len(named) < 2:
        return
    wrong = [device for device in named if device != target]
    for failed in failed_calls(context):
        strays = [tensor for tensor in failed.tensors() if tensor.device in wrong]
        if strays:
            failed.report("operands", strays, target, NOT_OURS)
            return


def _values(context: ErrorContext, faults: tuple[Fault, ...]) -> Iterator[Operand]:
    """Yield the tensors that the failing line names, then the arguments of the library call below it."""
    user, written = context.user, dict[str, str]()
    if user is None:
        return
    for fault in faults[:1]:  # which knows what the user wrote for what a library has names of its own for
        for operand in fault.operands:
            written[operand.argument] = operand.expression or operand.source
    names, seen = Names(context.state, user), list[torch.Tensor]()
    lists = set[tuple[str, torch.dtype, torch.device]]()  # a list is shown by one item
    for label, tensor in _tensors_met(user, context.below):
        name = names.expression(tensor) or written.get(label) or label
        is_word_of_torch = name[0].isdigit() or name == "input"  # which tells the reader nothing
        owner, _, place = name.rpartition("[")
        if place[:-1].isdigit():
            if (owner, tensor.dtype, tensor.device) in lists:
                continue
            lists.add((owner, tensor.dtype, tensor.device))
        if not is_word_of_torch and len(seen) < MOST_VALUES and not is_among(tensor, seen):
            seen.append(tensor)
            yield operand_of(tensor, name, name)


def _tensors_met(user: FrameType, below: tuple[FrameType, ...]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of the calls that frames were making; for a layer, its own tensors too."""
    for frame in (user, *below):
        call = failing_call(frame)
        if call is not None:
            yield from arguments(call.func, call.args, call.kwargs)
            if is_module(call.func):
                yield from own_tensors(call.func).items()


# Operands that were computed on the failing line and no longer exist.


def _meets_any(tensor: torch.Tensor) -> bool:
    """Return whether it is a number on the CPU, which meets tensors on any GPU."""
    return tensor.dim() == 0 and not is_accelerator(tensor.device)


_ALLOWED = re.compile(r"either on (cpu|the CPU) or", re.IGNORECASE)
"""The message on an index names the CPU as a device that would be right."""
_MOST = re.compile(rf"different from other tensors on ({DEVICE_NAME.pattern})")


def made_there(context: ErrorContext) -> None:
    """Report the operand that was created on the failing line and no longer exists."""
    user, (named, target) = context.user, devices_named(context)
    if user is None or not named:
        return
    call, scope, lost = failing_call(user), Scope(user), list[ast.expr]()
    tensors = arguments(call.func, call.args, call.kwargs) if call is not None else []
    for operand in operands_of(running_node(user)):
        parts = [operand]
        if isinstance(operand, ast.List | ast.Tuple):
            parts = operand.elts
        for part in parts:
            value = scope.value(part)
            if is_tensor(value):
                tensors.append(("", value))
            elif value is UNKNOWN and names_in(part):  # `-1e9` is on no device
                lost.append(part)
    if target is None:  # an index names the tensor that was read alone
        target = next((tensor.device for _, tensor in tensors if is_accelerator(tensor.device)), None)
    if target is None:
        return
    failing = _FailingLine(context, user, [device for device in named if device != target], target, tensors, lost)
    strays = failing.find_kept() or failing.find_factories() or failing.find_other_side()
    if strays:
        _write_fault(context, user, target, [*failing.operands_at_home(), *strays])


def lost_dtype(context: ErrorContext) -> None:
    """Report a computed value that NumPy has no dtype for."""
    dtype, user = lacking_dtype(message(context.error)), context.user
    match running_node(user):
        case ast.Call(func=ast.Attribute(value=owner, attr="numpy")) if dtype is not None and user is not None:
            cpu = torch.device("cpu")
            _write_fault(context, user, cpu, [_stray(owner, cpu)], "kernel", NoKernel(format_dtype(dtype)))


def unmoved_object(context: ErrorContext) -> None:
    """Report an object that a line asked to move, without the copy that this gave, if the message names both devices."""
    named, _ = devices_named(context)
    for frame in reversed(context.frames):
        running = running_node(frame) if is_users_code(frame.f_code) and len(named) == 2 else None
        for name in dict.fromkeys(names_in(running)):
            move = find_discarded_move(frame, name)
            if move.site is None or not move.method:
                continue
            requested = device_requested(getattr(parsed_statement(move.site.text), "value", None), Scope(frame))
            there, away = named if requested is not None and means(requested, named[0]) else named[::-1]
            if requested is None or not means(requested, there) or means(requested, away):
                continue
            operand = lost_operand(device_id(away), name, name, stray=True)
            operand = replace(operand, ineffective=move.site, ineffective_method=move.method)
            _write_fault(context, frame, there, [operand])
            return


def _write_fault(
    context: ErrorContext,
    frame: FrameType,
    target: torch.device,
    operands: Iterable[Operand],
    what: Family = "operands",
    detail: FaultDetail | None = None,
) -> None:
    call, site = failing_call(frame), raw_site(frame)
    context.state.report_fault(
        what,
        getattr(getattr(call, "func", None), "__name__", "operation"),
        site,
        error=context.error_text,
        target=device_id(target),
        operands=tuple(operands),
        expression=call_text(site),
        detail=detail,
    )


def devices_named(context: ErrorContext) -> tuple[list[torch.device], torch.device | None]:
    """Return the devices in the message, and where the call belongs: on an accelerator, unless it takes the host alone."""
    text = _ALLOWED.sub("either", message(context.error))
    named = list(map(torch.device, dict.fromkeys(DEVICE_NAME.findall(text))))
    if HOST_WORDS.search(text):
        return named, torch.device("cpu")
    for device in (*map(torch.device, _MOST.findall(text)), *named):
        if is_accelerator(device):
            return named, device
    return named, None


@dataclass(frozen=True, slots=True)
class _FailingLine:
    """The line that failed, and the remaining operands of its call.

    Attributes:
        context: the exception.
        user: the frame of the line.
        wrong: devices of misplaced operands.
        target: the device that they should have been on.
        tensors: operands that still exist, by the operator's names.
        lost: expressions of operands that no longer exist.
    """

    context: ErrorContext
    user: FrameType
    wrong: list[torch.device]
    target: torch.device
    tensors: list[tuple[str, torch.Tensor]]
    lost: list[ast.expr]

    def find_kept(self) -> list[Operand]:
        """Return lost operands that were on a wrong device, if tensor creation was watched when the call failed."""
        known = [tensor for _, tensor in self.tensors]
        kept = [each for each in self.context.state.births.operands_of(self.context.error) if not is_among(each, known)]
        if len(self.lost) != len(kept):
            return []
        names, strays = Names(self.context.state, self.user), []
        for node, tensor in zip(self.lost, kept, strict=True):
            if tensor.device in self.wrong and tensor.dim():
                strays.append(replace(_stray(node, tensor.device), **names.find_story(tensor, self.target)))
        return strays

    def find_factories(self) -> list[Operand]:
        """Return the operands that a factory on the line itself created on a wrong device."""
        scope, site, strays = Scope(self.user), to_site(site_of(self.user)), []
        at_hand = tuple(each.expression for each in self.operands_at_home() if each.expression)
        for node in self.lost:
            factory = factory_of(node, scope)
            if factory is None or factory.device not in self.wrong:
                continue
            origin = Origin(site, (), factory.text, factory.name, direct=True, partners=at_hand)
            strays.append(replace(_stray(node, factory.device), **origin.list_fields()))
        return strays

    def find_other_side(self) -> list[Operand]:
        """Return the one unknown operand, if all others are on one of the two devices that were mixed."""
        if len(self.context.below) > 1:  # what a library met below may be a tensor of its own
            return []
        scope = Scope(self.user)
        unknown = [node for node in self.lost if next(scope.leaves(node), None) is None]
        moved = [device_requested(each, scope) for node in unknown for each in ast.walk(node)]
        wrong = self.wrong or [device for device in moved if device not in (None, self.target)]
        homes = {tensor.device for _, tensor in self.tensors if not _meets_any(tensor)}
        if self.target.type == "cpu":  # a read on the host needs no other tensor
            homes.add(self.target)
        if len(unknown) != 1 or len(wrong) != 1 or homes != {self.target}:
            return []
        return [_stray(unknown[0], wrong[0])]

    def operands_at_home(self) -> list[Operand]:
        """Return the operands on the right device."""
        names = Names(self.context.state, self.user)
        home = []
        for label, tensor in self.tensors:
            if label and tensor.device == self.target:
                home.append(operand_of(tensor, label, names.expression(tensor)))
        return home


def _stray(node: ast.expr, device: torch.device) -> Operand:
    text = ast.unparse(node)
    return lost_operand(device_id(device), text, "", stray=True, source=text)


_OF_LINES = (_failed_call, _missing_build, _by_its_words, made_there, lost_dtype, unmoved_object)
"""What needs the frames of the call that failed."""
