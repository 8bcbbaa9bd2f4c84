"""Record what a torch call does besides creating tensors, repair failed calls, and find promotions to float64."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from devwidget.capture import precision, torch_internals
from devwidget.capture.data_parallel.faults import one_loss
from devwidget.capture.faults import devices, moves, operand_names, operands
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.faults.owners import kept_by_user
from devwidget.capture.modes.birth_mode import BirthMode, TorchCall
from devwidget.capture.recording.births import Birth, TensorRef
from devwidget.capture.recording.event_log import device_id, format_dtype, operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.recording.transfers import is_pinned
from devwidget.capture.recording.waits import LISTS, READS
from devwidget.capture.source_code.call_sites import RawSite, call_text, to_site
from devwidget.capture.source_code.stack import caller, is_own
from devwidget.capture.source_code.statements import MOVES
from devwidget.capture.tensors import is_parameter, is_tensor, tensors_in
from devwidget.records.fault_details import WrongDtype
from devwidget.records.trace import Held


def report_promotion(state: RecordingState, call: TorchCall, result: torch.Tensor) -> None:
    """Record a result that is float64 only because one operand is. Explicit casts are not reported."""
    site, direct = call.site, caller(call.frame)
    floats = [t for t in tensors_in((call.args, call.kwargs), depth=2) if t.is_floating_point()]
    doubles = [t for t in floats if t.dtype is torch.float64]
    narrow = [t for t in floats if t.dtype is not torch.float64]
    if not doubles or not narrow or site is None or state.tracker.phase not in ("forward", "loss"):
        return
    frame = _through_nn(direct)
    if frame is None or frame.f_code is not site.code or (frame is direct and state.tracker.is_outside(site)):
        return
    birth = state.births.find_birth(doubles[0])
    if birth is not None and _is_meant(birth):
        return
    names = operand_names.Names(state, frame)
    stray = names.describe_stray(doubles[0], "other", names.expression(doubles[0]), result.device, "dtype")
    state.report_fault(
        "promotion",
        call.name,
        site,
        operands=(operand_of(narrow[0], "input", names.expression(narrow[0])), stray),
        target=device_id(result.device),
        expression=call_text(site),
        model_name=names.model_name(),
        detail=WrongDtype(format_dtype(narrow[0].dtype)),
    )


def _through_nn(frame: FrameType | None) -> FrameType | None:
    """Return the caller of a torch.nn loss, which only computes with its arguments and casts nothing."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("torch.nn."):
        frame = frame.f_back
    return frame


def _is_meant(birth: Birth) -> bool:
    """Return whether the tensor was cast to float64, or computed from one that was, or from an earlier promotion."""
    root = birth.dtype_root()
    return root.call in MOVES or root.parent is not None


FAMILIES = (
    operands.handle_mixed_dtensors,
    operands.handle_generator,
    operands.handle_mixed_devices,
    operands.handle_host_only,
    operands.handle_meta,
    devices.handle_absent_device,
    precision.handle_index,
    precision.handle_missing_kernel,
    precision.handle_mixed_dtypes,
    precision.handle_unsafe_loss,
)
"""What recognises and repairs a failed call, one function per family of faults."""


def _is_tried(func: Any, frame: FrameType | None) -> bool:
    """Return whether virtual GPUs call this operator themselves and handle its failure."""
    while frame is not None and frame.f_code.co_filename == torch_internals.operators_file:
        frame = frame.f_back
    return isinstance(func, torch_internals.OpOverload) and frame is not None and is_own(frame.f_code.co_filename)


def _find_reader(frame: FrameType) -> FrameType:
    """Return who reads an attribute that virtual GPUs read for them."""
    while is_own(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame


class CallMode(BirthMode):
    """Follows data across devices, and repeats a call with a device fault after moving the misplaced tensors."""

    def _run_backward(self, func: Any, args: tuple[Any, ...], kwargs: Any, site: RawSite | None) -> Any:
        tracker = self._state.tracker
        with tracker.set_phase("backward"):
            try:
                out = func(*args, **kwargs)
            except RuntimeError as error:
                loss = one_loss(self._state, args[0] if args else None, error, to_site(site))
                if loss is None:
                    raise
                out = func(loss, *args[1:], **kwargs)
        # The backward of a checkpoint is not a step.
        if func.__name__ == "backward" and torch_internals.current_autograd_node() is None:
            self._state.waits.go_back(site.code if site is not None else None)
            tracker.end_step()
            self._state.ties.note_trained()
        return out

    def _run_healed_call(self, func: Any, args: tuple[Any, ...], kwargs: Any, error: Exception, frame: FrameType) -> Any:
        if isinstance(error, torch_internals.StopRecomputation) or _is_tried(func, frame):
            return NOT_OURS
        call = FailedCall(self._state, func, args, kwargs, error, frame)
        for handle in FAMILIES:
            try:
                out = handle(call)
            except torch_internals.StopRecomputation:
                raise
            except Exception as trouble:  # a bug of ours must not take the place of the user's exception
                self._state.log.log_trouble(trouble)
                continue
            if out is not NOT_OURS:
                return out
        return NOT_OURS

    def _nothing_read(self, func: Any, owner: Any, frame: FrameType) -> None:
        own = vars(torch_internals.TensorBase)["grad"]
        if func.__self__ in (own, vars(torch.Tensor).get("grad")):  # virtual GPUs have their own
            try:
                moves.look_for_gradient(self._state, owner, _find_reader(frame))
            except Exception as trouble:  # a bug of devwidget must not reach the user's program
                self._state.log.log_trouble(trouble)

    def _note_use(self, birth: Birth, site: RawSite | None, *, there: bool) -> None:
        self._state.transfers.note_use(birth, site, there=there)

    def _note_float64(self, call: TorchCall, result: torch.Tensor) -> None:
        report_promotion(self._state, call, result)

    def _note_transfer(self, birth: Birth, call: TorchCall, result: torch.Tensor) -> None:
        source, before = call.args[0], birth.origin
        held = self._find_keeper(source, before, call)
        later = bool(call.kwargs.get("non_blocking")) or any(value is True for value in call.args[1:3])
        transfer = self._state.transfers.make_transfer(birth.number, birth.site, before, source, result.device, held)
        transfer.unsafe = later and result.device.type == "cpu"
        transfer.loading = self._find_loading(source, result, later=later)
        if held is not None:
            transfer.moved = TensorRef(result)
        self._state.transfers.note_arrival(birth, transfer, before)

    def _find_loading(
        self, source: torch.Tensor, result: torch.Tensor, *, later: bool
    ) -> tuple[RawSite | None, bool, bool] | None:
        """Return how a loader's tensor, or a view of it, is copied to an accelerator."""
        loaded, whole = self._state.loaded, source if source in self._state.loaded else source._base
        if whole is None or whole not in loaded or source.device.type != "cpu" or not is_accelerator(result.device):
            return None
        return loaded[whole], is_pinned(source), later

    def _looked_up(self, index: torch.Tensor, device: torch.device, call: TorchCall) -> None:
        """Note that `x[index]` copies a CPU index to the GPU of `x` implicitly. A number is passed with the call."""
        if not index.dim() or index.device.type != "cpu" or not call.is_direct():
            return
        before = self._state.births.find_birth(index)
        held = self._find_keeper(index, before, call)
        if held is not None:
            number = self._state.log.number()
            transfer = self._state.transfers.make_transfer(number, call.site, before, index, device, held)
            transfer.is_index = True
            self._state.transfers.keep_transfer(transfer)

    def _find_keeper(self, source: torch.Tensor, before: Birth | None, call: TorchCall) -> Held | None:
        """Return who keeps a tensor that is copied in the step and is older than it."""
        tracker, site = self._state.tracker, call.site
        in_loss = tracker.phase == "loss" and site is not None and not tracker.is_outside(site)
        inside = bool(tracker.here.stack) or in_loss
        if before is None or not inside or before.number >= tracker.step or not source.dim() or is_parameter(source):
            return None
        return kept_by_user(tracker, call.frame, before)

    def _note_more(self, call: TorchCall) -> None:
        super()._note_more(call)
        args, kwargs = call.args, call.kwargs
        match call.name:
            case "__setitem__":
                self._note_written(call)
            case "copy_":
                self._note_copied(call)
            case name if name in LISTS:
                self._note_listed(args[0] if args else kwargs.get("data", kwargs.get("obj")))
            case name if name in READS:
                self._note_wait(call)

    def _note_written(self, call: TorchCall) -> None:
        target, indices, value = call.args
        self._note_filled(target, value, call)
        for index in tensors_in(indices, depth=1):
            if index.device != target.device:
                self._looked_up(index, target.device, call)

    def _note_filled(self, target: torch.Tensor, value: Any, call: TorchCall) -> None:
        """Note that `buffer[i] = value` takes a value from any device and copies it implicitly."""
        if not is_tensor(value) or value.device == target.device or not call.is_direct():
            return
        if not value.dim() and not is_accelerator(value.device):  # a number on the CPU is taken along with the call
            return
        state, transfers = self._state, self._state.transfers
        birth, before = state.births.birth_of(target), state.births.find_birth(value)
        transfer = transfers.make_transfer(state.log.number(), call.site, before, value, target.device)
        transfer.into = transfers.find_target(transfer)
        if transfer.into is None:
            names = operand_names.Names(state, call.frame)
            transfer.into = names.describe_stray(target, "self", names.expression(target), value.device)
        transfer.trains = value.requires_grad and torch.is_grad_enabled()
        transfer.computed = birth.transfer is not None and birth.transfer.computed
        transfers.note_arrival(birth, transfer, before)

    def _note_copied(self, call: TorchCall) -> None:
        """Note `host.copy_(tensor, non_blocking=True)`: the existing buffer is not ready yet."""
        target, source, later = _arguments_of_copy(*call.args, **call.kwargs)
        site, state = call.site, self._state
        if not later or not is_tensor(source):
            return
        if is_accelerator(source.device) and target.device.type == "cpu":
            birth = Birth.make_birth(target, state.log.number(), call="copy_", site=site, direct=True, is_move=True)
            state.births.put_birth(target, birth)
            before = state.births.find_birth(source)
            transfer = state.transfers.make_transfer(birth.number, site, before, source, target.device)
            transfer.unsafe = True
            state.transfers.note_arrival(birth, transfer, before)

    def _note_wait(self, call: TorchCall) -> None:
        """Note that a value was passed to Python."""
        name, site = call.name, call.site
        tensor = call.args[0] if call.args else None
        if not is_tensor(tensor):
            return
        birth = self._state.births.find_birth(tensor)
        if birth is not None and birth.transfers:
            self._state.transfers.note_use(birth, site)
        if is_accelerator(tensor.device):
            self._state.transfers.note_synchronized()
            if name == "tolist" and self._state.tracker.here.waits is None:  # virtual GPUs need no copy for it
                self._state.waits.note_wait(tensor.device)
        elif birth is not None and birth.transfer is not None:
            moved = birth.transfer
            if moved.into is None and is_accelerator(moved.source):
                self._state.waits.read[moved.site, moved.source] = name, site

    def _note_listed(self, data: Any) -> None:
        """Note a tensor made from a list of tensors, whose values torch reads one by one, unseen by modes."""
        if is_tensor(data):
            return
        for tensor in tensors_in(data):
            if is_accelerator(tensor.device):
                self._state.transfers.note_synchronized()
                self._state.waits.note_wait(tensor.device)


def _arguments_of_copy(target: torch.Tensor, src: Any = None, non_blocking: bool = False) -> tuple[torch.Tensor, Any, bool]:
    return target, src, non_blocking
