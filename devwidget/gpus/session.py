"""Starts and ends a simulation in this process; its tracebacks end in torch, not in the code that stands in for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from devwidget.capture.explain.folded_frames import fold, folded, unfold
from devwidget.capture.undo import Undo
from devwidget.gpus import (
    autocast,
    comm,
    composites,
    conversions,
    dispatch_mode,
    factories,
    machine,
    patching,
    scripting,
    storage,
    tensor_classes,
    threads,
)
from devwidget.gpus import cuda as functions
from devwidget.gpus import gradients as gradient_hooks
from devwidget.gpus import tensors as attributes
from devwidget.gpus.labels import LABELS
from devwidget.gpus.parts import check_parts, find_account_opener, find_values, install_parts, load_parts
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.state import Ledger
from devwidget.gpus.torch_internals import locate_name
from devwidget.gpus.virtual_machine import VirtualMachine


def install_folding(patches: Patches) -> None:
    """Fold what the notebook shows, and the text that a worker of DataParallel hands over."""
    worker_error, _ = locate_name("reraise_worker_error")
    patches.wrap(worker_error, "__init__", _fold_worker_error)
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        owner = object()
        patches.undo.add_step(_unfold_after_the_cell, shell, owner)
        fold(shell, owner)


@replacing
def _fold_worker_error(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
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
    attributes.install,
    storage.install,
    factories.install,
    functions.install_functions,
    functions.install_refusals,
    comm.install,
    composites.install_composite_checks,
    gradient_hooks.install_gradient_checks,
    gradient_hooks.install_hook_devices,
    autocast.install,
    functions.install_generators,
    tensor_classes.install_legacy_types,
    conversions.install_device_type,
    threads.install_thread_modes,
    install_folding,
    scripting.install_eager_originals,
    tensor_classes.install_subclass_makers,
    tensor_classes.install_fake_devices,
    composites.install_gpu_functions,
    patching.install_import_watch,
    scripting.install_scripting,
)


class Session:
    """One simulation: what it replaces, and the mode of the thread that starts it.

    Args:
        over: what to do when everything is back.
    """

    def __init__(self, cluster: VirtualMachine, over: Callable[[], None]) -> None:
        self._cluster, self._undo = cluster, Undo()
        self._undo.add_step(over)

    def begin(self) -> None:
        """Put everything in; if that fails, `end` takes out what is in.

        Raises:
            SimulationError: if no part of this installation can do what is asked.
        """
        load_parts()
        check_parts(self._cluster)
        self._undo.add_step(_reset_state, VirtualMachine((), True))
        self._undo.add_step(setattr, SimulationState, "is_running", False)
        SimulationState.is_running = True
        _reset_state(self._cluster)
        patches = Patches(self._undo)
        for install in INSTALLS:
            install(patches)
        install_parts(patches, self._cluster)
        # Steps are undone from the last to the first: threads are waited for while all is in, and the mode, which is entered
        # last so that no installation passes through it, leaves before the patches do.
        self._undo.enter_context(dispatch_mode.new_mode())
        self._undo.add_step(threads.wait_for_threads)

    def is_in_use(self) -> bool:
        """Whether the program has used a GPU."""
        return machine.Machine.is_in_use

    def end(self) -> None:
        """Put everything back; modes that were entered after the simulation stay, in whatever thread this is."""
        self._undo.run_steps()


def _reset_state(cluster: VirtualMachine) -> None:
    """A new state, in which nothing is noted yet."""
    SimulationState.compute, SimulationState.on_guess = cluster.compute, None
    SimulationState.values = find_values(cluster)
    SimulationState.ledger = Ledger(())
    LABELS.clear()
    machine.build_machine(cluster.memory_bytes, find_account_opener(cluster))
