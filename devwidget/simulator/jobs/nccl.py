"""The backend `nccl` of virtual GPUs: a group has it by name and by its rules, and gloo carries what it sends."""

from __future__ import annotations

import datetime
import os
import socket
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed import distributed_c10d as c10d

from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message
from devwidget.simulator.devices import cuda_errors
from devwidget.simulator.devices.machine import Machine
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators.collectives import CARRIERS
from devwidget.simulator.patching import Patches, replacing

DEFAULT_TIMEOUT = datetime.timedelta(minutes=10)
"""Source: `kProcessGroupNCCLDefaultTimeout`."""
NAME = "nccl"


class NcclOptions:
    """`ProcessGroupNCCL.Options`, which nothing here depends on but the timeout."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self._timeout = DEFAULT_TIMEOUT
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.split_from: Any = None
        self.split_color = 0
        self.config = NcclConfig()


class NcclConfig:
    """`ncclConfig_t`: any setting."""


class VirtualNccl(c10d.ProcessGroupGloo):
    """`ProcessGroupNCCL` of virtual GPUs.

    Raises:
        SimulationError: if tensors have no values to send.
    """

    Options = NcclOptions
    supports_coalescing = True
    supports_splitting = True

    def __init__(self, store: Any, rank: int, size: int, options: NcclOptions | None = None) -> None:
        if not SimulationState.compute:
            raise SimulationError(
                Message("virtual GPUs without values send nothing to other processes"),
                why=Message("their tensors have no numbers"),
                instead="devwidget.simulate(..., compute=True)",
            )
        options = options or NcclOptions()
        super().__init__(store, rank, size, timeout=options._timeout)
        self._store, self._checked = store, set[tuple[int, int | None]]()
        self._carrying = dist.ProcessGroup(rank, size)
        self._carrying._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self)
        self._boxed = self._carrying.boxed()
        self._begun: list[Any] | None = None
        self._nccl_options = options

    @property
    def options(self) -> NcclOptions:
        """As they were given."""
        return self._nccl_options

    def name(self) -> str:
        """NCCL's."""
        return NAME

    def boxed_group(self) -> Any:
        """The group that carries."""
        return self._boxed

    def check_gpu(self, label: int, peer: int | None) -> None:
        """Refuse a GPU that another rank has, when it is first used, as NCCL does when it connects the ranks.

        Raises:
            DistBackendError: with NCCL's words.
        """
        if (label, peer) in self._checked or self.size() == 1:
            return
        self._checked.add((label, peer))
        own = f"{socket.gethostname()}/{os.environ.get('SLURM_NODEID', '')}/{Machine.visible[label]}".encode()
        others = [peer] if peer is not None else [rank for rank in range(self.size()) if rank != self.rank()]
        for rank in others:
            self._store.set(self._key(self.rank(), rank, peer), own)
        for rank in others:
            key = self._key(rank, self.rank(), peer)
            # Two that talk need not wait for each other: the other one may first talk to a third.
            if (peer is None or self._store.check([key])) and bytes(self._store.get(key)) == own:
                raise cuda_errors.duplicate_gpu(self.rank(), rank, Machine.visible[label])

    def _key(self, rank: int, reader: int, peer: int | None) -> str:
        return f"devwidget/gpu/{rank}" if peer is None else f"devwidget/gpu/{rank}/{reader}"

    def remember_work(self, work: Any) -> None:
        """Work that was begun while calls are gathered."""
        if self._begun is not None:
            self._begun.append(c10d.Work.unbox(work))

    def begin_gathering(self) -> None:
        """`_start_coalescing`."""
        self._begun = []

    def end_gathering(self) -> c10d.Work:
        """`_end_coalescing`: one work for all that was begun."""
        begun, self._begun = self._begun or [], None
        return GatheredWork(begun)

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Connect the ranks now and not at the first collective."""
        self.check_gpu(device.index, None)

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Take no part in a new group; nobody waits for that here."""

    def _shutdown(self) -> None:
        """Nothing is left to close."""


class GatheredWork(c10d.Work):
    """What several calls have begun."""

    def __init__(self, parts: list[Any]) -> None:
        super().__init__()
        self._parts = parts

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Wait for all."""
        return all([part.wait() for part in self._parts])

    def is_completed(self) -> bool:
        """Whether all are over."""
        return all(part.is_completed() for part in self._parts)


def install_nccl(patches: Patches) -> None:
    """Have torch take it for its own backend."""
    for module in (c10d, dist):
        patches.set(module, "ProcessGroupNCCL", VirtualNccl)
    patches.hold(c10d, "_NCCL_AVAILABLE", True)
    patches.set(c10d, "default_pg_nccl_timeout", DEFAULT_TIMEOUT)
    group = dist.ProcessGroup
    patches.wrap(group, "_register_backend", _note_carrier)
    patches.wrap(group, "_start_coalescing", _begin_gathering)
    patches.wrap(group, "_end_coalescing", _end_gathering)
    patches.undo.add_step(CARRIERS.clear)


@replacing
def _note_carrier(original: Any, self: Any, device: torch.device, kind: Any, backend: Any = None) -> None:
    original(self, device, kind, backend)
    if isinstance(backend, VirtualNccl):
        CARRIERS[self] = backend


@replacing
def _begin_gathering(original: Any, self: Any, device: torch.device) -> None:
    carrier = CARRIERS.get(self)
    return carrier.begin_gathering() if isinstance(carrier, VirtualNccl) else original(self, device)


@replacing
def _end_gathering(original: Any, self: Any, device: torch.device) -> Any:
    carrier = CARRIERS.get(self)
    return carrier.end_gathering() if isinstance(carrier, VirtualNccl) else original(self, device)
