"""Starts and ends a simulation in this process."""

from __future__ import annotations

from collections.abc import Callable

from devwidget.capture.undo import Undo
from devwidget.simulator.accelerator import CUDA
from devwidget.simulator.cluster import VirtualMachine
from devwidget.simulator.cuda_surface import absent, comm, functions, generators
from devwidget.simulator.devices import labels, machine
from devwidget.simulator.devices.labels import LABELS
from devwidget.simulator.devices.ledger import Ledger
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators import dispatch_mode
from devwidget.simulator.patching import Patches
from devwidget.simulator.tensor_surface import attributes, device_type, factories, legacy_types, storage, wrapper_subclasses
from devwidget.simulator.torch_surface import (
    autocast,
    autograd,
    backward_devices,
    compiling,
    composites,
    fake_tensors,
    gpu_functions,
    imports,
    processes,
    scripting,
    threads,
    tracebacks,
)

PARTS = (
    attributes,
    storage,
    factories,
    functions,
    absent,
    comm,
    composites,
    autograd,
    backward_devices,
    autocast,
    generators,
    legacy_types,
    device_type,
    threads,
    tracebacks,
    compiling,
    wrapper_subclasses,
    fake_tensors,
    gpu_functions,
    imports,
    scripting,
    processes,
)


class Session:
    """One simulation: what it replaces, and the mode of the thread that starts it.


    Args:
        over: what to do when everything is back.
    """

    def __init__(self, cluster: VirtualMachine, over: Callable[[], None]) -> None:
        self._cluster, self._undo = cluster, Undo()
        self._undo.add(over)

    def begin(self) -> None:
        """Put everything in; if that fails, `end` takes out what is in."""
        self._undo.add(_reset_state, VirtualMachine((), True, CUDA))
        self._undo.add(setattr, SimulationState, "is_running", False)
        SimulationState.is_running = True
        _reset_state(self._cluster)
        patches = Patches(self._undo)
        for part in PARTS:
            part.install(patches)
        self._undo.enter(dispatch_mode.new_mode())
        self._undo.add(threads.wait_for_all)

    def end(self) -> None:
        """Put everything back; modes that were entered after the simulation stay, in whatever thread this is."""
        self._undo.run()


def _reset_state(cluster: VirtualMachine) -> None:
    """A new state, in which nothing is noted yet."""
    SimulationState.accelerator, SimulationState.compute, SimulationState.on_guess = cluster.accelerator, cluster.compute, None
    SimulationState.ledger = Ledger((), cluster.accelerator.block_bytes)
    LABELS.clear()
    labels.name_devices()
    machine.build_machine(cluster.memory_bytes, cluster.card)
