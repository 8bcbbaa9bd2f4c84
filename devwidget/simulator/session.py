"""Starts and ends a simulation in this process."""

from __future__ import annotations

from typing import Any

import torch._dynamo  # noqa: F401 - torch would import it in mid-operator, with the patches put aside for all threads

from devwidget.simulator import (
    autocast,
    autograd_surface,
    comm,
    compiling,
    composites,
    cuda_surface,
    device_type,
    factories,
    fakes,
    generators,
    imports,
    legacy_types,
    machine,
    storage_surface,
    tensor_surface,
    threads,
    valueless,
    wrappers,
)
from devwidget.simulator.cluster import Cluster
from devwidget.simulator.labels import LABELS, Books
from devwidget.simulator.ledger import Ledger
from devwidget.simulator.patching import Patches

PARTS = (
    tensor_surface,
    storage_surface,
    factories,
    cuda_surface,
    comm,
    composites,
    autograd_surface,
    autocast,
    generators,
    legacy_types,
    device_type,
    threads,
    compiling,
    wrappers,
    fakes,
    imports,
)


class Session:
    """One running simulation: what it replaced, and the mode of the thread that started it."""

    def __init__(self, cluster: Cluster) -> None:
        Books.ledger, Books.compute, Books.on_guess = Ledger(()), cluster.compute, None
        LABELS.clear()
        machine.build(cluster.memory_bytes)
        self._patches = Patches()
        self._mode: Any = valueless.new_mode()
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
        LABELS.clear()
        Books.ledger, Books.compute, Books.on_guess = Ledger(()), True, None
        machine.build(())
