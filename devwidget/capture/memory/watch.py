"""Watch memory: hooks at which the roles of allocations are found, and figures for devices without an allocator."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.memory.curves import Curves
from devwidget.capture.memory.roles import MemoryBlock, Roles
from devwidget.capture.patching.global_hooks import MODULE_BEGINS, MODULE_ENDS, STEP_BEGINS, STEP_ENDS
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.tensors import tensors_in, walk_modules
from devwidget.capture.undo import Undo
from devwidget.records.device import CPU
from devwidget.records.memory import HELD, DeviceMemory, Holding, MemoryCurve, MemoryPoint
from devwidget.records.schema.message import Message
from devwidget.records.site import Phase


def held_curves(marks: Sequence[tuple[int, Phase, tuple[DeviceMemory, ...]]]) -> tuple[MemoryCurve, ...]:
    """Return the curve of the cpu if the model holds anything there. Activations are unknown and left out."""
    of_cpu = [(number, phase, memory) for number, phase, devices in marks for memory in devices if memory.device == CPU]
    points = tuple(_make_point(*mark) for mark in of_cpu)
    if any(point.allocated for point in points):
        return (MemoryCurve(of_cpu[-1][2], "model", points),)
    return ()


def _make_point(number: int, phase: Phase, memory: DeviceMemory) -> MemoryPoint:
    parts = {part: getattr(memory, part) for part in HELD}
    return MemoryPoint(number, phase, None, None, sum(parts.values()), **parts)


class MemorySource(Protocol):
    """Devices whose allocations can be observed.

    Attributes:
        count: number of devices.
    """

    count: int

    def devices(self) -> tuple[DeviceMemory, ...]:
        """Return the current devices."""

    def allocated(self, index: int) -> int:
        """Return the bytes in use on a device."""

    def listen(self, listener: Any) -> Collection[MemoryBlock]:
        """Notify `listener` of each block from now on; return the blocks already in use."""

    def leave(self, listener: Any) -> None:
        """Stop notifying it."""

    def mode(self) -> contextlib.AbstractContextManager[object]:
        """Return a mode that must be active in each thread."""

    def blocks_of(self, tensor: torch.Tensor) -> tuple[MemoryBlock, ...]:
        """Return the blocks that hold a tensor."""

    def follow(self, blocks: Collection[MemoryBlock]) -> Callable[[], Collection[MemoryBlock]]:
        """Follow these blocks after the recording; return what lists those in use."""


_NOT_TOLD = Message(
    "{kind}: {reason}",
    kind=Message("activations"),
    reason=Message("torch before 2.9 does not report what autograd keeps; it is counted as other"),
)


class MemoryWatch:
    """The memory of the devices of one source during one recording."""

    def __init__(self, state: RecordingState, source: MemorySource) -> None:
        self._state, self._source = state, source
        self._ends: tuple[DeviceMemory, ...] = ()
        self._curves = Curves(state)
        self._roles = Roles(state, source.blocks_of)

    def begin_watch(self, undo: Undo) -> None:
        """Start listening."""
        undo.add_step(self._source.leave, self._curves)
        undo.add_step(self._roles.let_go)
        if torch_internals.saved_data is None:
            self._state.log.add_note(_NOT_TOLD)
        self._curves.begin(self._source.listen(self._curves))
        self.mark_devices()
        self._state.call_hook(MODULE_ENDS, self._after_module, undo)
        self._state.call_hook(MODULE_BEGINS, self._before_module, undo)
        self._state.call_hook(STEP_BEGINS, self._before_step, undo)
        self._state.call_hook(STEP_ENDS, self._before_step, undo)
        for name in ("backward", "grad"):
            self._state.listen(torch.autograd, name, self._run_backward, undo)
        undo.enter_context(self._source.mode())

    def in_thread(self) -> contextlib.AbstractContextManager[object]:
        """Return a context that must be active in another thread of the program."""
        return self._source.mode()

    def register_inputs(self, inputs: Any) -> None:
        """Register the tensors of the batch and the target."""
        with self._guard_reading():
            self._roles.claim_inputs(inputs)

    def mark_devices(self) -> None:
        """Record a point of each device."""
        for index in range(self._source.count):
            self._curves.mark(index, self._source.allocated(index))

    def finish_watch(self, error: BaseException | None) -> None:
        """Assign the remaining roles before the recording ends."""
        with self._guard_reading():
            if error is not None:
                self._roles.claim_failed(error.__traceback__)
            self._roles.claim_everything()
        self.mark_devices()
        self._ends = self._source.devices()

    def follow_living(self, index: int) -> Callable[[], list[Holding]]:
        """Return what lists the bytes allocated on a device during the recording and still in use, to be called after it."""
        living = self._curves.list_living(index)
        list_blocks = self._source.follow(living.keys())
        return lambda: [living[block] for block in list_blocks()]

    def list_curves(self) -> tuple[MemoryCurve, ...]:
        """Return one curve per device."""
        self._curves.fold_events()
        return tuple(self._curves.make_record(index, end) for index, end in enumerate(self._ends or self._source.devices()))

    @contextlib.contextmanager
    def _guard_reading(self) -> Iterator[None]:
        """Keep errors of reading tensors out of the user's program."""
        try:
            with hide_from_modes(), torch_internals.DisableTorchFunction():
                yield
        except Exception as error:
            self._state.log.log_trouble(error)

    # -- hooks

    def _before_module(self, module: nn.Module, args: Any) -> None:
        if len(self._state.tracker.here.stack) != 1:  # not outermost in its thread
            return
        with self._guard_reading():
            self._roles.claim_model(part for _, part in walk_modules(module))
            self._roles.claim_inputs(args)

    def _after_module(self, module: nn.Module, args: Any, *rest: Any) -> None:
        if self._state.tracker.here.stack:
            return
        with self._guard_reading():
            if len(rest) == 1:  # it raised: torch calls hooks without the keyword arguments then
                self._roles.claim_failed(sys.exc_info()[2])
                return
            self._roles.claim_inputs((args, rest[0]))
            self._roles.claim_role("outputs", tensors_in(rest[1]))
            self._roles.claim_saved(rest[1])

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        with self._guard_reading():
            self._roles.claim_optimizer(optimizer)

    def _run_backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self._guard_reading():
            self._roles.claim_saved([args[:1], kwargs])
            self._curves.calling = self._state.tracker.find_site(sys._getframe(1))
        try:
            return original(*args, **kwargs)
        finally:
            with self._guard_reading():
                self._roles.claim_model(module for _, module in self._state.tracker.list_modules())
