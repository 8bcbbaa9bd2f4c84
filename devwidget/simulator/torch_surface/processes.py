"""Threads that are started while a simulation runs belong to it; new processes have no virtual GPUs, nor NCCL, and are told."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any

from devwidget.capture.interrupts import Lock
from devwidget.capture.patching.mode_stack import dispatch_modes
from devwidget.capture.patching.thread_starts import pool_tasks, thread_starts
from devwidget.capture.undo import Undo
from devwidget.records.errors import SimulationError, message
from devwidget.records.schema.message import Message, in_language
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators import dispatch_mode
from devwidget.simulator.operators.dispatch_mode import VirtualMode
from devwidget.simulator.patching import Patches, replacing

GRACE_S = 0.5
"""How long the end of a simulation waits for its threads."""
_running: dict[threading.Thread, VirtualMode] = {}
_lock = Lock()
_is_simulated = False


def install_thread_modes(patches: Patches) -> None:
    """Have every new thread and task enter a mode of its own, and threads of an earlier simulation go on in this one."""
    patches.undo.add_step(_end_threads)
    _resume_threads()
    thread_starts(lambda: _run_simulated, patches.undo)
    pool_tasks(lambda: _run_simulated, patches.undo)


@_lock
def _resume_threads() -> None:
    global _is_simulated
    _is_simulated = True
    for mode in _running.values():
        dispatch_mode.reactivate_mode(mode)


@_lock
def _end_threads() -> None:
    global _is_simulated
    _is_simulated = False
    for mode in _running.values():
        dispatch_mode.deactivate_mode(mode)


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
        _running[thread] = undo.enter_context(dispatch_mode.new_mode())


def wait_for_threads() -> None:
    """Let replicas that Ctrl-C has left alone end in their simulation: torch for CUDA aborts where a virtual GPU is no more."""
    until = time.monotonic() + GRACE_S
    # A copy: threads that end meanwhile leave the dictionary.
    for thread in list(_running):
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))


_MODULES = "torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh"
"""Each has names of its own for the same functions."""
_NOT_THERE = "NCCL built in"
_WORKERS = "torch.utils.data"
"""Processes of torch's loaders, which leave GPUs alone."""


class NoNccl(SimulationError, RuntimeError):
    """What torch raises where it is built without NCCL, with what would do."""


def install_process_warnings(patches: Patches) -> None:
    """Speak where a process starts without virtual GPUs, and where NCCL is asked for."""
    patches.wrap(BaseProcess, "start", _warn_of_process)
    for name in _MODULES:
        if name in sys.modules:
            for function in ("init_process_group", "new_group"):
                patches.wrap(sys.modules[name], function, _explain_nccl)


@replacing
def _warn_of_process(original: Callable[[BaseProcess], None], self: BaseProcess) -> None:
    if _start_method(self) != "fork" and not str(getattr(getattr(self, "_target", None), "__module__", "")).startswith(
        _WORKERS
    ):
        warnings.warn(in_language(_word_warning(self.name)), RuntimeWarning, stacklevel=2)
    original(self)


def _word_warning(name: str) -> Message:
    return Message(
        "{name} has no virtual GPUs, because it begins as a new process: it sees the GPUs of this machine. "
        "Let what it runs begin with {line}",
        name=name,
        line=f"devwidget.simulate({len(SimulationState.ledger.accounts)}).start()",
    )


def _start_method(process: BaseProcess) -> str:
    """How a process begins: as its class says, or as all do."""
    return getattr(process, "_start_method", None) or multiprocessing.get_start_method()


@replacing
def _explain_nccl(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return original(*args, **kwargs)
    except RuntimeError as error:
        if _NOT_THERE not in message(error) or isinstance(error, NoNccl):
            raise
        raise NoNccl(
            Message("virtual GPUs have no NCCL: {error}", error=message(error)),
            why=Message("it connects real GPUs"),
            instead=Message('init_process_group("gloo"), which carries tensors of virtual GPUs too'),
        ) from error
