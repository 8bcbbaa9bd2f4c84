"""The recorder: installs hooks and modes, and takes every one of them out again, whatever happens."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from devwidget.capture import background_births, torch_internals
from devwidget.capture.data_parallel.constructions import constructions
from devwidget.capture.data_parallel.gradients import parallel_gradients
from devwidget.capture.explain.failure import failure_of
from devwidget.capture.memory.held import held_curves
from devwidget.capture.modes.dispatch_mode import Ops
from devwidget.capture.modes.function_mode import Calls
from devwidget.capture.modes.module_hooks import module_hooks
from devwidget.capture.patches.attention_fast_path import fast_paths
from devwidget.capture.patches.compiled import compiled
from devwidget.capture.patches.custom_gradients import gradients
from devwidget.capture.patches.exported import exports
from devwidget.capture.patches.external_tensors import arrivals
from devwidget.capture.patches.higher_order import higher_order
from devwidget.capture.patches.optimizers import optimizers
from devwidget.capture.patches.saved_hooks import saved_hooks
from devwidget.capture.patches.state_dicts import checkpoints
from devwidget.capture.patches.tensor_swaps import swaps
from devwidget.capture.patching.global_hooks import MODULE_BEGINS
from devwidget.capture.recording.allowed_transfers import AllowedTransfer
from devwidget.capture.recording.copy_checks import CopyChecks
from devwidget.capture.recording.state import State
from devwidget.capture.recording.threads import threads
from devwidget.capture.source_code.call_sites import forget_sites
from devwidget.capture.tensors import shape_of, tensors_in
from devwidget.capture.undo import Undo
from devwidget.capture.validation import refuse_model
from devwidget.records.errors import DevwidgetError, error_text, message
from devwidget.records.failure import Failure
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase, Trace

if TYPE_CHECKING:
    from devwidget.capture.memory.watch import MemoryWatch, Source


class Recorder:
    """Watches the code inside its `with` block.

    Never swallows an exception: one that leaves the block is written down and goes on.

    Args:
        heal: repair each fault in passing and go on, so that one run shows all of them. Without it the code behaves
            exactly as outside.
        allow: hops and waits that are meant.
        verify_hops: compare both ends of every copy between GPUs.
    """

    def __init__(self, *, heal: bool = False, allow: tuple[AllowedTransfer, ...] = (), verify_hops: bool = False) -> None:
        torch_internals.check("reading tensors", "recording")
        self._state = State(heal=heal, older=background_births.births())
        self._state.transfers.allowed = self._state.waits.allowed = allow
        self._state.copy_checks = CopyChecks(self._state.log, self._state.tracker) if verify_hops else None
        self._state.watching = self._modes
        self._undo = Undo()
        self._memory: MemoryWatch | None = None
        self._held: list[tuple[int, Phase, tuple[DeviceMemory, ...]]] = []
        self._error = ""
        self._failure: Failure | None = None
        self._seconds = 0.0
        self._samples = 0
        self._once = threading.Lock()
        self._facts: Trace | None = None

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, name: str = "") -> None:
        """Say which module is the root; without it the outermost module called is.

        Args:
            model: the root.
            optimizer: its optimizer.
            name: how the user's code calls the model, for the texts.

        Raises:
            DevwidgetError: if `model` is no module.
        """
        refuse_model(model)
        self._state.tracker.close_roots()
        self._state.tracker.attach(model, name)

    def during(self, phase: Phase) -> contextlib.AbstractContextManager[None]:
        """Name the phase of the step that the block is."""
        return self._state.tracker.during(phase)

    def watch_memory(self, source: Source) -> None:
        """Follow every allocation on the devices of a source, until the recording ends."""
        from devwidget.capture.memory.watch import MemoryWatch  # only where there are GPUs: `import devwidget` stays light

        self._memory = MemoryWatch(self._state, source)
        self._memory.watch(self._undo)

    def given(self, batch: Any, target: Any) -> None:
        """These tensors are the batch and the target."""
        inputs = batch, target
        for field, value in (("target", target), ("batch", batch)):
            for tensor in tensors_in(value):
                self._state.given[tensor] = field
        lengths = {shape[0] for tensor in tensors_in(inputs) if (shape := shape_of(tensor))}
        self._samples = lengths.pop() if len(lengths) == 1 else 0
        if self._memory is not None:
            self._memory.given(inputs)

    def stand_in(self, tensor: torch.Tensor, original: torch.Tensor) -> None:
        """A tensor was born where another was, whose memory it has."""
        birth = self._state.births.get(original)
        if birth is not None:
            self._state.births.put(tensor, birth)

    def is_new(self, leaf: torch.Tensor) -> bool:
        """Whether a leaf was made during this recording.

        Of a parameter made of what was computed nothing is known. A forward that goes back itself does so for its own.
        """
        if self._state.tracker.running is not None:
            return True
        birth = self._state.births.tensors.get(id(leaf))
        return birth is not None and birth() is leaf and birth.number >= 0

    def note(self, text: str) -> None:
        """Something that the trace cannot tell, and why."""
        self._state.log.note(text)

    def mark(self, phase: Phase, held: Callable[[], tuple[DeviceMemory, ...]], *, ran: bool = True) -> None:
        """Note how full each device is at the end of a phase.

        Args:
            held: what the model and its optimizer hold; only asked where there is no allocator to ask.
            ran: whether anything ran in that phase; if not, they hold what they held at the end of the one before.
        """
        if self._memory is not None:
            self._memory.mark()
        else:
            self._held.append((self._state.log.number(), phase, held() if ran or not self._held else self._held[-1][2]))

    def report(self, model: nn.Module, told: Callable[[str], None]) -> None:
        """Tell from time to time which module runs, until the recording ends."""
        from devwidget.capture.recording.progress import Progress  # only for a screen

        MODULE_BEGINS.call(Progress(self._state, model, told).began, self._undo)

    def beside(self, modes: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
        """Enter these modes too in every further thread that is watched, outside the recorder's own."""
        ours = self._state.watching

        @contextlib.contextmanager
        def both() -> Iterator[None]:
            with Undo() as undo:
                undo.enter(modes())
                undo.enter(ours())
                yield

        self._state.watching = both

    def facts(self) -> Trace:
        """All that was recorded, without findings."""
        return self._facts or self._read()

    def _read(self) -> Trace:
        log = self._state.log
        return Trace(
            faults=log.faults_seen(),
            moves=log.moves(),
            ops=log.ops(),
            modules=log.modules(),
            memory=self._memory.curves() if self._memory is not None else held_curves(self._held),
            replicas=self._state.parallel.replicas(),
            parallel=self._state.parallel.calls(),
            crossings=self._state.transfers.crossings(),
            waits=self._state.waits.records(),
            steps=self._state.tracker.steps,
            error=self._error,
            failure=self._failure,
            copy_checks=tuple(self._state.copy_checks.records()) if self._state.copy_checks is not None else (),
            collectives=self._state.collectives.calls(),
            groups=self._state.collectives.groups(),
            not_checked=tuple(log.troubles),
            seconds=self._seconds,
            samples=self._samples,
        )

    def refuse_again(self) -> None:
        """Say that the recording begins.

        Raises:
            DevwidgetError: if it has begun before; nothing is changed then.
        """
        if not self._once.acquire(blocking=False):
            raise DevwidgetError(
                Message("a recording can be entered once"), instead="with devwidget.record() as recording: ..."
            )

    def __enter__(self) -> Recorder:
        undo = self._undo  # a failure half-way: `__exit__` takes out what is in
        patches = (
            constructions,
            arrivals,
            optimizers,
            checkpoints,
            parallel_gradients,
            fast_paths,
            compiled,
            higher_order,
            swaps,
            exports,
            saved_hooks,
        )
        undo.gather()
        for put_in in patches:
            put_in(self._state, undo)
        gradients(self._state, lambda: Calls(self._state), undo)
        self._state.transfers.watch(self._state.is_here, undo)
        threads(self._state, undo)
        undo.enter_gathered()
        module_hooks(self._state, undo)
        self._enter_modes(undo)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Take out what is in; called again, do what an exception has kept it from."""
        with Undo() as last:
            last.add(forget_sites)
            last.add(self._undo.run)
            if self._memory is not None and self._facts is None:
                self._memory.finish(error)
        if self._facts is None:
            self._seconds = time.perf_counter() - self._state.started
            if error is not None:
                self._error = error_text(error)
                self._failure = failure_of(error, message(error), self._state.tracker.failed)
                self._meet_current(error)
            self._facts = self._read()
        self._state.let_go()
        self._state.watching = self._modes  # what stood beside them holds the whole model

    def _meet_current(self, error: BaseException) -> None:
        from devwidget.capture.explain.current_device import meet_current  # with the first exception, not with the import

        try:
            meet_current(self._state, error)
        except Exception as trouble:  # a bug of ours must not take the place of the user's exception
            self._state.log.trouble(trouble)

    @contextlib.contextmanager
    def _modes(self) -> Iterator[None]:
        with Undo() as undo:
            self._enter_modes(undo)
            yield

    def _enter_modes(self, undo: Undo) -> None:
        switch, state = torch_internals.set_function_state, torch_internals.function_state
        if switch and state:  # our looking is hidden from function modes: it may be cut short before it lets go
            undo.add(switch, state())
        self._state.begin_in_thread(undo)
        undo.enter(Ops(self._state))
        undo.enter(Calls(self._state))
        if self._memory is not None:
            undo.enter(self._memory.in_thread())
