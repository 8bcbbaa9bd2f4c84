"""Starts and ends a simulation in this process, and in its threads; its tracebacks end in torch, not in our replacements."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from devwidget.capture.explain.folded_frames import fold, folded, unfold
from devwidget.capture.interrupts import Lock
from devwidget.capture.patches.unnoticed import show_lines_of_callers
from devwidget.capture.patching import registry
from devwidget.capture.patching.mode_stack import dispatch_modes
from devwidget.capture.patching.thread_starts import pool_tasks, thread_starts
from devwidget.capture.undo import Undo
from devwidget.gpus import autocast, comm, composites, cuda, factories, gradients, machine, operators, scripting, tensors
from devwidget.gpus.labels import LABELS
from devwidget.gpus.operators import VirtualMode
from devwidget.gpus.parts import install_parts, open_state
from devwidget.gpus.patching import Patches, install_import_watch, install_replacements, replaces
from devwidget.gpus.state import Simulation, simulation
from devwidget.gpus.torch_internals import locate_name
from devwidget.gpus.virtual_machine import VirtualMachine
from devwidget.records.site import find_shell

GRACE_S = 0.5
"""How long the end of a simulation waits for its threads."""
_running: dict[threading.Thread, VirtualMode] = {}
_lock = Lock()
_is_simulated = False


def _install_thread_modes(patches: Patches) -> None:
    patches.undo.add_step(_switch_threads, False)
    _switch_threads(True)
    thread_starts(lambda: _run_simulated, patches.undo)
    pool_tasks(lambda: _run_simulated, patches.undo)


@_lock
def _switch_threads(on: bool) -> None:
    global _is_simulated
    _is_simulated = on
    for mode in _running.values():
        (operators.reactivate_mode if on else operators.deactivate_mode)(mode)


@contextlib.contextmanager
def _run_simulated() -> Iterator[None]:
    """Run the calling thread in the simulation, if that has not ended before the thread began."""
    with Undo() as undo:
        _join_simulation(threading.current_thread(), undo)
        yield


@_lock
def _join_simulation(thread: threading.Thread, undo: Undo) -> None:
    if _is_simulated and not any(isinstance(mode, VirtualMode) for mode in dispatch_modes()):
        undo.add_step(_running.pop, thread, None)
        # Modes are kept per thread.
        _running[thread] = undo.enter_context(operators.kind_of_mode()())


def _wait_for_threads() -> None:
    """Let replicas that Ctrl-C has left alone end in their simulation: torch for CUDA aborts when a virtual GPU is gone."""
    until = time.monotonic() + GRACE_S
    # A copy: threads that end meanwhile leave the dictionary.
    for thread in list(_running):
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))


def _install_folding(patches: Patches) -> None:
    shell = find_shell()
    if shell is not None:
        owner = object()
        patches.undo.add_step(_unfold_after_the_cell, shell, owner)
        fold(shell, owner)


@replaces(locate_name("reraise_worker_error")[0], "__init__")
def _fold_worker_error(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """Fold the text that a worker of DataParallel hands over."""
    # Torch writes the text down now; the frames are gone when it is read.
    with folded(sys.exception()):
        original(self, *args, **kwargs)


def _unfold_after_the_cell(shell: Any, owner: object) -> None:
    """What `with devwidget.simulate(2):` lets through is shown when these GPUs are gone."""

    def unfold_now(result: Any) -> None:
        shell.events.unregister("post_run_cell", unfold_now)
        unfold(shell, owner)

    shell.events.register("post_run_cell", unfold_now)


INSTALLS = (
    lambda patches: show_lines_of_callers(patches.undo),
    install_replacements,
    tensors.install_properties,
    cuda.install_functions,
    comm.install_comm,
    composites.install_composite_checks,
    lambda patches: patches.undo.add_step(gradients.release_hooks),
    lambda patches: patches.undo.add_step(autocast.unregister_kernels),
    factories.install_legacy_types,
    _install_thread_modes,
    _install_folding,
    factories.install_fake_devices,
    install_import_watch,
    scripting.install_scripting,
)


class Session:
    """One simulation: what it replaces, and the mode of the thread that starts it; calls `over` when everything is back."""

    def __init__(self, cluster: VirtualMachine, over: Callable[[], None]) -> None:
        self._cluster, self._undo = cluster, Undo()
        self._undo.add_step(over)

    def begin(self) -> None:
        """Put everything in; if that fails, `end` takes out what is in."""
        registry.sweep()
        state = open_state(self._cluster)
        self._undo.add_step(_set_state, Simulation())
        _set_state(state)
        patches = Patches(self._undo)
        for install in INSTALLS:
            install(patches)
        install_parts(patches, self._cluster)
        # Steps are undone from the last to the first: threads are waited for while all is in, and the mode, which is entered
        # last so that no installation passes through it, leaves before the patches do.
        self._undo.enter_context(operators.kind_of_mode()())
        self._undo.add_step(_wait_for_threads)

    def is_in_use(self) -> bool:
        """Whether the program has used a GPU."""
        return simulation.is_in_use

    def end(self) -> None:
        """Put everything back; modes that were entered after the simulation stay, in whatever thread this is."""
        self._undo.run_steps()


def _set_state(state: Simulation) -> None:
    simulation.become(state)
    LABELS.clear()
    machine.build_machine()
