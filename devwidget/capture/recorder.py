"""The recorder: installs hooks and modes, and removes every one of them, whatever happens."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from devwidget.capture import background_births, torch_internals
from devwidget.capture.data_parallel.constructions import watch_constructions
from devwidget.capture.data_parallel.steps import parallel_gradients, watch_wrappers
from devwidget.capture.explain.traceback_frames import failure_of, traceback_frames
from devwidget.capture.memory.watch import held_curves
from devwidget.capture.modes.dispatch_mode import OperatorMode
from devwidget.capture.modes.function_mode import CallMode
from devwidget.capture.modes.module_hooks import module_hooks
from devwidget.capture.object_fields import find_class_attribute
from devwidget.capture.patches.arrivals import watch_arrivals, watch_swaps
from devwidget.capture.patches.compiled import watch_compilation, watch_exports
from devwidget.capture.patches.custom_gradients import watch_gradients
from devwidget.capture.patches.higher_order import higher_order
from devwidget.capture.patches.optimizers import watch_optimizers
from devwidget.capture.patches.state_dicts import watch_checkpoints
from devwidget.capture.patches.unnoticed import stay_unnoticed
from devwidget.capture.patching import registry
from devwidget.capture.patching.global_hooks import MODULE_BEGINS, MODULE_ENDS
from devwidget.capture.patching.mode_stack import leave_modes
from devwidget.capture.patching.registry import listen
from devwidget.capture.recording.allowed_transfers import AllowedTransfer
from devwidget.capture.recording.recorded_threads import watch_threads
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import forget_edited_files, forget_sites
from devwidget.capture.tensors import shape_of, tensors_in, walk_modules
from devwidget.capture.undo import Undo
from devwidget.capture.validation import refuse_model, refuse_optimizer
from devwidget.records.errors import DevwidgetError, error_text, message
from devwidget.records.explanation import Failure
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import Message
from devwidget.records.trace import PHASES, Phase, Trace

if TYPE_CHECKING:
    from devwidget.capture.memory.watch import MemorySource, MemoryWatch


EVERY_SECONDS = 0.2
Taken = TypeVar("Taken")


class Recorder:
    """Records the code inside its `with` block.

    An exception that leaves the block is recorded and propagates.

    Args:
        heal: repair each fault and continue, so that one run shows all faults. Without it behaviour is unchanged.
        allow: transfers and syncs that are intentional.
    """

    def __init__(self, *, heal: bool = False, allow: tuple[AllowedTransfer, ...] = ()) -> None:
        torch_internals.check_names("reading tensors", "recording")
        self._state = RecordingState(heal=heal, older=background_births.get_background_births())
        self._state.transfers.allowed = self._state.waits.allowed = allow
        self._state.watching = self._make_modes
        self._undo = Undo()
        self._beside: list[Callable[[], contextlib.AbstractContextManager[object]]] = []
        self.memory: MemoryWatch | None = None
        self._held: list[tuple[int, Phase, tuple[DeviceMemory, ...]]] = []
        self._error = ""
        self._failure: Failure | None = None
        self._seconds = 0.0
        self._samples = 0
        self._has_begun = False
        self._facts: Trace | None = None

    def attach_model(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, name: str = "") -> None:
        """Set the root module. Without it the outermost called module is the root module.

        Args:
            model: the root.
            optimizer: its optimizer.
            name: name of the model in the user's code, for messages.

        Raises:
            DevwidgetError: if `model` is not a module, or `optimizer` not an optimizer.
        """
        refuse_model(model)
        if find_class_attribute(type(optimizer), "step") is None:  # an object with `step` may be an optimizer written by hand
            refuse_optimizer(optimizer)
        self._state.tracker.close_roots()
        self._state.tracker.attach_model(model, name)

    def set_phase(self, phase: Phase) -> contextlib.AbstractContextManager[None]:
        """Set the phase of the step in the block."""
        return self._state.tracker.set_phase(phase)

    def watch_memory(self, source: MemorySource) -> None:
        """Follow every allocation on the devices of a source until the recording ends."""
        from devwidget.capture.memory.watch import MemoryWatch  # only where there are GPUs: `import devwidget` stays light

        self.memory = MemoryWatch(self._state, source)
        self.memory.begin_watch(self._undo)

    def register_inputs(self, batch: Any, target: Any) -> None:
        """Register the tensors of the batch and the target."""
        inputs = batch, target
        for field, value in (("target", target), ("batch", batch)):
            for tensor in tensors_in(value):
                self._state.given[tensor] = field
        lengths = {shape[0] for tensor in tensors_in(inputs) if (shape := shape_of(tensor))}
        self._samples = lengths.pop() if len(lengths) == 1 else 0
        if self.memory is not None:
            self.memory.register_inputs(inputs)

    def stand_in(self, tensor: torch.Tensor, original: torch.Tensor) -> None:
        """Give a tensor the creation site of another one, whose memory it shares."""
        birth = self._state.births.find_birth(original)
        if birth is not None:
            self._state.births.put_birth(tensor, birth)

    def take_batch(self, take: Callable[[], Taken]) -> Taken:
        """Return the batch of the step, and measure how long its loader takes for it."""
        thread = threading.get_ident()
        with Undo() as undo:
            if batches := torch_internals.BatchIterator:
                clock = self._state.loader_clock.time_first
                listen(lambda: threading.get_ident() == thread, batches, "__next__", clock, undo)
            return take()

    def add_note(self, text: str) -> None:
        """Add a note on something that the trace cannot show."""
        self._state.log.add_note(text)

    def mark_phase(self, phase: Phase, held: Callable[[], tuple[DeviceMemory, ...]], *, ran: bool = True) -> None:
        """Record how full each device is at the end of a phase.

        Args:
            held: returns what the model and its optimizer hold; only called for devices without an allocator.
            ran: whether anything ran in that phase. If not, the figures of the previous phase still hold.
        """
        if self.memory is not None:
            self.memory.mark_devices()
        else:
            self._held.append((self._state.log.number(), phase, held() if ran or not self._held else self._held[-1][2]))

    def report_progress(self, model: nn.Module, told: Callable[[str], None]) -> None:
        """Report from time to time which module runs, until the recording ends.

        Args:
            model: its modules count as 100 %.
            told: called with words such as `forward of encoder.layer.3, 40 %`.
        """
        tracker, whole = self._state.tracker, max(1, sum(1 for _ in walk_modules(model)))
        begun, last = 0, 0.0

        def report_module(module: nn.Module, args: Any) -> None:
            nonlocal begun, last
            begun += 1
            now, path = time.perf_counter(), tracker.here.path
            if now - last >= EVERY_SECONDS and path:
                last = now
                told(f"{tracker.phase} of {path}, {min(99, 100 * begun // whole)} %")

        self._state.call_hook(MODULE_BEGINS, report_module, self._undo)

    def report_calls(self, told: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]) -> None:
        """Call back for each module that the program calls itself, with its arguments, when it returns, until the recording
        ends.
        """

        def ended(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
            here = self._state.tracker.here
            if len(rest) == 2 and not here.stack and here.replica < 0:
                told(module, args, rest[0])

        self._state.call_hook(MODULE_ENDS, ended, self._undo)

    def enter_beside(self, modes: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
        """Enter these context managers in every further watched thread, outside of the recorder's own."""
        self._beside.insert(0, modes)

    def collect_trace(self) -> Trace:
        """Return the recording as a trace without findings."""
        return self._facts or self._read_trace()

    def _read_trace(self) -> Trace:
        tracker = self._state.tracker
        return Trace(
            memory=self.memory.list_curves() if self.memory is not None else held_curves(self._held),
            steps=tracker.steps,
            phases=tuple(each for each in PHASES if each in tracker.phases),
            error=self._error,
            failure=self._failure,
            seconds=self._seconds,
            samples=self._samples,
            **self._state.list_facts(),
        )

    def refuse_again(self) -> None:
        """Mark the recording as begun.

        Raises:
            DevwidgetError: if it has already begun; nothing is changed then.
        """
        if self._has_begun:
            raise DevwidgetError(
                Message("a recording can only be entered once"), instead="with devwidget.record() as recording: ..."
            )
        self._has_begun = True

    def __enter__(self) -> Recorder:
        undo = self._undo  # a failure half-way: `__exit__` takes out what is in
        registry.sweep()
        forget_edited_files()
        patches = (
            watch_constructions,
            watch_wrappers,
            watch_arrivals,
            watch_optimizers,
            watch_checkpoints,
            parallel_gradients,
            watch_compilation,
            higher_order,
            watch_swaps,
            watch_exports,
        )
        for put_in in patches:
            put_in(self._state, undo)
        stay_unnoticed(undo)
        watch_gradients(self._state, lambda: CallMode(self._state), undo)
        self._state.transfers.watch_synchronizers(self._state.listen, undo)
        watch_threads(self._state, undo)
        module_hooks(self._state, undo)
        self._enter_modes(undo)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove what was installed. A second call finishes what an exception interrupted."""
        with Undo() as last:
            last.add_step(forget_sites)
            last.add_step(self._undo.run_steps)
            if self.memory is not None and self._facts is None:
                self.memory.finish_watch(error)
        if self._facts is None:
            self._seconds = time.perf_counter() - self._state.started
            if error is not None:
                self._error = error_text(error)
                self._failure = failure_of(error, message(error), self._state.tracker.failed)
                self._meet_last(error)
            self._facts = self._read_trace()
        self._state.let_go()
        self._beside.clear()
        self._state.watching = contextlib.nullcontext  # a method would be a cycle, and its neighbours hold the whole model

    def _meet_last(self, error: BaseException) -> None:
        from devwidget.capture.explain import error_context, raised_errors  # with the first exception, not with the import

        frames = traceback_frames(error.__traceback__)
        context = error_context.ErrorContext(error, error, tuple(frames), self._state)
        error_context.run_readers(context, raised_errors.READERS)

    @contextlib.contextmanager
    def _make_modes(self) -> Iterator[None]:
        with Undo() as undo:
            for modes in self._beside:
                undo.enter_context(modes())
            self._enter_modes(undo)
            yield

    def _enter_modes(self, undo: Undo) -> None:
        switch, state = torch_internals.set_function_state, torch_internals.function_state
        if switch and state:  # our reads are hidden from function modes, and may be interrupted before they restore them
            undo.add_step(switch, state())
        self._state.begin_in_thread(undo)
        undo.add_step(leave_modes, self._state)
        undo.enter_context(OperatorMode(self._state))
        undo.enter_context(CallMode(self._state))
        if self.memory is not None:
            undo.enter_context(self.memory.in_thread())
