"""The workspaces that cuBLAS takes on a card, one for each handle. Source: `CublasHandlePool.cpp`."""

from __future__ import annotations

import threading

from devwidget.simulator.devices import cuda_errors
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.torch_internals import graph_task


def take(index: int) -> None:
    """Before a product on a GPU: the thread's handle has its workspace. All of backward is one thread there.

    Raises:
        torch.cuda.OutOfMemoryError: if it does not fit.
    """
    ledger = SimulationState.ledger
    account = ledger.accounts[index]
    if not account.workspace:
        return
    handle = "backward" if graph_task() >= 0 else threading.get_ident()
    if handle not in account.workspaces:
        block = ledger.take_bytes(index, account.workspace)
        if block is None:
            raise cuda_errors.out_of_memory(index, account.workspace, ledger)
        account.workspaces[handle] = block
