"""Starts and ends a simulation in this process."""

from __future__ import annotations

from typing import Any

from devwidget.simulator.accelerators.accelerator import Accelerator
from devwidget.simulator.accelerators.cuda import CUDA
from devwidget.simulator.cluster import Cluster
from devwidget.simulator.cuda_surface import comm, functions, generators
from devwidget.simulator.devices import labels, machine
from devwidget.simulator.devices.books import Books
from devwidget.simulator.devices.labels import LABELS
from devwidget.simulator.devices.ledger import Ledger
from devwidget.simulator.operators import mode_without_values
from devwidget.simulator.patching import Patches
from devwidget.simulator.tensor_surface import attributes, device_type, factories, legacy_types, storage, wrapper_subclasses
from devwidget.simulator.torch_surface import autocast, autograd, compiling, composites, fake_tensors, imports, threads

PARTS = (
    attributes,
    storage,
    factories,
    functions,
    comm,
    composites,
    autograd,
    autocast,
    generators,
    legacy_types,
    device_type,
    threads,
    compiling,
    wrapper_subclasses,
    fake_tensors,
    imports,
)


class Session:
    """One running simulation: what it replaced, and the mode of the thread that started it."""

    def __init__(self, cluster: Cluster) -> None:
        _open(cluster.accelerator, cluster.compute)
        machine.build(cluster.memory_bytes)
        self._patches = Patches()
        self._mode: Any = mode_without_values.new_mode()
        try:
            for part in PARTS:
                part.install(self._patches)
            self._patches.settle()
            self._mode.__enter__()
        except BaseException:
            self._put_back()
            raise

    def end(self) -> None:
        """Put everything back; modes that were entered after the simulation stay, in whatever thread this is."""
        threads.wait_for_all()
        self._mode.__exit__(None, None, None)
        self._put_back()

    def _put_back(self) -> None:
        self._patches.undo()
        _open(CUDA, compute=True)
        machine.build(())


def _open(accelerator: Accelerator, compute: bool) -> None:
    """New books, in which nothing is written yet."""
    Books.accelerator, Books.compute, Books.on_guess = accelerator, compute, None
    Books.ledger = Ledger((), accelerator.block_bytes)
    LABELS.clear()
    labels.name_devices()
