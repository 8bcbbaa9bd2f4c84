"""The backend `nccl` of virtual GPUs: a group has it by name and by its rules, and gloo carries what it sends."""

from __future__ import annotations

import atexit
import datetime
import socket
import time
import types
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed import distributed_c10d as c10d

from devwidget.extras.jobs.collectives import CARRIERS
from devwidget.gpus.patching import Patches, replaces
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import locate_name
from devwidget.gpus.virtual_machine import VirtualMachine
from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message

DEFAULT_TIMEOUT = datetime.timedelta(minutes=10)
"""Source: `kProcessGroupNCCLDefaultTimeout`."""
NAME = "nccl"
LONGEST_S, PAUSE_S, GRACE_S = 10.0, 0.01, 0.1


class NcclOptions:
    """`ProcessGroupNCCL.Options`, which nothing here depends on but the timeout."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self._timeout = DEFAULT_TIMEOUT
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.split_from: Any = None
        self.split_color = 0
        self.config = types.SimpleNamespace()  # `ncclConfig_t`: any setting


class VirtualNccl(c10d.ProcessGroupGloo):
    """`ProcessGroupNCCL` of virtual GPUs.

    Raises:
        SimulationError: if tensors have no values to send.
    """

    Options = NcclOptions  # type: ignore[assignment]
    supports_coalescing = True
    supports_splitting = True

    def __init__(self, store: Any, rank: int, size: int, options: NcclOptions | None = None) -> None:
        if not simulation.compute:
            raise SimulationError(
                Message("virtual GPUs without values cannot send tensors to other processes"),
                why=Message("their tensors have no values"),
                instead="devwidget.simulate(..., compute=True)",
            )
        options = options or NcclOptions()
        super().__init__(store, rank, size, timeout=options._timeout)
        self._store, self._checked = store, set[tuple[int, int | None]]()
        self.carrying: Any = c10d.ProcessGroup(rank, size)  # type: ignore[call-arg]
        self.carrying._register_backend(torch.device("cpu"), c10d.ProcessGroup.BackendType.GLOO, self)
        self.begun: list[Any] | None = None
        self._nccl_options = options
        atexit.unregister(_end_all)  # once for all
        atexit.register(_end_all)
        _alive.append(self)

    @property
    def options(self) -> NcclOptions:  # type: ignore[override]
        """As they were given."""
        return self._nccl_options

    def name(self) -> str:
        """NCCL's."""
        return NAME

    def let_go(self) -> None:
        """End the circle with the group that carries, which holds this backend in C++, where Python cannot find it."""
        self.carrying = None

    def check_gpu(self, label: int, peer: int | None) -> None:
        """Refuse a GPU that another rank has, when it is first used, as NCCL does when it connects the ranks.

        Raises:
            DistBackendError: with NCCL's words.
        """
        if (label, peer) in self._checked or self.size() == 1:
            return
        self._checked.add((label, peer))
        own = f"{socket.gethostname()}/{simulation.visible[label]}"
        twin = self._find_twin(own, peer)
        if twin is not None:
            # Source: NCCL's `init.cc`, and torch's `NCCLUtils.cpp`. The bus of the GPU is as in `CudaProperties.pci_bus_id`.
            raise dist.DistBackendError(
                "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN "
                "for details), NCCL version 2.29.7\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
                f"Last error:\nDuplicate GPU detected : rank {self.rank()} and rank {twin} both on CUDA device "
                f"{simulation.visible[label] << 12:x}"
            )

    def _find_twin(self, own: str, peer: int | None) -> int | None:
        """Another rank with this GPU. Waits for the last rank, as any code that connects all ranks must."""
        if peer is not None:
            return self._ask_peer(own, peer)
        store = c10d.PrefixStore(f"devwidget/{len(self._checked)}", self._store)
        store.set(str(self.rank()), own)
        found = [store.get(str(rank)).decode() for rank in range(self.size())]
        have_read, until = store.add("read", 1), time.monotonic() + LONGEST_S
        others = dict(enumerate(found))
        others.pop(self.rank())
        twins = [rank for rank, gpu in others.items() if gpu == own]
        # The first rank, which keeps the store as a rule, may end when it raises: the others are to read first.
        while twins and self.rank() == 0 and have_read < self.size() and time.monotonic() < until:
            time.sleep(PAUSE_S)
            have_read = store.add("read", 0)
        return twins[0] if twins else None

    def _ask_peer(self, own: str, peer: int) -> int | None:
        """The other one of two that talk, if it has this GPU; not waited for, because it may first talk to a third."""
        store = c10d.PrefixStore("devwidget/pair", self._store)
        store.set(f"{self.rank()}/{peer}", own)
        theirs = f"{peer}/{self.rank()}"
        if store.check([theirs]) and store.get(theirs).decode() == own:
            return peer
        return None

    def gather_uneven(self, results: list[torch.Tensor], own: torch.Tensor) -> Any:
        """Have each rank send its tensor to all; only the last of them is left to wait for.

        All of them together would be work in Python, and C++ would hold no part that waits.
        """
        results[self.rank()].copy_(own)
        for rank, result in enumerate(results):
            options = c10d.BroadcastOptions()
            options.rootRank, options.asyncOp = rank, True
            work = self.carrying.broadcast([result], options)
            if rank + 1 < len(results):
                work.wait()
        return work.boxed()

    def remember_work(self, work: Any) -> None:
        """Work that was begun while calls are gathered."""
        if self.begun is not None:
            self.begun.append(c10d.Work.unbox(work))

    def eager_connect_single_device(self, device: torch.device | None) -> None:
        """Connect the ranks now and not at the first collective."""
        if device is not None:
            self.check_gpu(device.index, None)

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Take no part in a new group; nothing waits for that here."""

    def _shutdown(self) -> None:
        """Nothing is left to close."""


class _GatheredWork(c10d.Work):
    def __init__(self, parts: list[Any]) -> None:
        super().__init__()
        self._parts = parts

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        waited = [part.wait() for part in self._parts]  # for each, whatever the first one says
        return all(waited)

    def is_completed(self) -> bool:
        return all(part.is_completed() for part in self._parts)


def install_nccl(patches: Patches, machine: VirtualMachine) -> None:
    """Have torch take it for its own backend."""
    for module in (c10d, dist):
        patches.set(module, "ProcessGroupNCCL", VirtualNccl)
    patches.hold(*locate_name("has_nccl"), True)
    patches.set(c10d, "default_pg_nccl_timeout", DEFAULT_TIMEOUT)
    patches.undo.add_step(CARRIERS.clear)


_alive: list[VirtualNccl] = []
"""All of this process, until it ends. What drops the last reference, such as DDP's reducer, waits for gloo's threads and holds
the lock of Python, which these need to free what they sent: both would wait for good."""


def _end_all() -> None:
    """Give gloo's threads the time to free what they sent last: if Python ends before, torch aborts the process. It
    does so without us too, and NCCL does not."""
    time.sleep(GRACE_S)
    for each in _alive:
        each.let_go()
    _alive.clear()


@replaces(*locate_name("register_backend"))
def _note_carrier(original: Any, self: Any, device: torch.device, kind: Any, backend: Any = None) -> None:
    original(self, device, kind, backend)
    if isinstance(backend, VirtualNccl) and kind != c10d.ProcessGroup.BackendType.GLOO:  # else the group that carries
        CARRIERS[self] = backend


PREMULTIPLIED = dist.ReduceOp.PREMUL_SUM


@replaces(*locate_name("reduce_scatter_tensor"))
@replaces(c10d.ProcessGroup, *"allreduce reduce reduce_scatter reduce_scatter_single".split())
def _multiply_before(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """A sum of what is first multiplied, which gloo does not have: in place where the result is, else in a copy."""
    options = next((each for each in (*args, *kwargs.values()) if hasattr(each, "reduceOp")), None)
    if options is None or self not in CARRIERS or options.reduceOp != PREMULTIPLIED:
        return original(self, *args, **kwargs)
    _, factor = options.reduceOp.__getstate__()
    options.reduceOp = dist.ReduceOp.SUM
    if len(args) == 2:  # tensors, options
        for tensor in args[0]:
            tensor.mul_(factor)
    else:  # results, tensors, options
        args = (args[0], _multiplied(args[1], factor), *args[2:])
    return original(self, *args, **kwargs)


def _multiplied(value: Any, factor: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value * factor
    return [_multiplied(each, factor) for each in value]


@replaces(*locate_name("begin_coalescing"))
@replaces(*locate_name("end_coalescing"))
def _gather_calls(original: Any, self: Any, device: torch.device) -> Any:
    """Works that are begun in between are one, which the second call returns."""
    carrier = CARRIERS.get(self)
    if carrier is None:
        return original(self, device)
    if original.__name__ == "_start_coalescing":
        carrier.begun = []
        return None
    begun, carrier.begun = carrier.begun or [], None
    return _GatheredWork(begun)
