"""The step of one rank, in a process of its own, on a virtual GPU in a group of fake ranks: every allocation is watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from devwidget.capture.memory.roles import MemoryBlock
from devwidget.capture.snapshot.odd_tensors import local_part
from devwidget.capture.snapshot.wrapper_facts import find_wrapping
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import all_tensors, is_tensor, named_tensors, walk_modules
from devwidget.capture.torch_internals import FakeStore, TorchDispatchMode, tree_leaves
from devwidget.extras.plan.changes import Changed, prepare_checkpointing
from devwidget.extras.plan.current_module import CurrentModule
from devwidget.extras.plan.loops import Loop, MeanStep, start_loop
from devwidget.extras.plan.parallel.mesh import At, Mesh, Shard, spread_by_default
from devwidget.extras.plan.parallel.pipeline import Passed, StageStep
from devwidget.extras.plan.placement import place_batch, place_copy
from devwidget.extras.plan.records.parallel_plan import PhasePeak, RankPlan
from devwidget.extras.plan.records.plan import PlanMoment
from devwidget.extras.plan.rehearsal import remake_optimizer, run_phase
from devwidget.extras.plan.watcher import Watcher, virtual_gpu
from devwidget.gpus.labels import block_of_storage
from devwidget.gpus.machine import list_blocks
from devwidget.gpus.state import Account, simulation
from devwidget.gpus.virtual_machine import VirtualMachine
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase

# Operators of this namespace fill the buffers of FSDP2's collectives.
_OF_FSDP = "fsdp"


class RankWatcher(Watcher):
    """The onlooker of a rank's GPU, which knows what of the model is gathered.

    Attributes:
        account: of the GPU.
        most: bytes held in each part of the step.
        most_gathered: bytes of parameters that are gathered, and buffers of that.
        kept, of_gathering, of_buckets: blocks of the model itself, of what is gathered, and of what DDP has for the gradients
            that it adds up over the ranks.
        at_peak: called with the bytes that are held, whenever a part of the step holds as much as ever.
    """

    def __init__(self) -> None:
        super().__init__(gpus=1)
        self.account: Account | None = None
        self.most, self.most_gathered = dict[Phase, int](), 0
        self.kept, self.of_gathering, self.of_buckets = set[MemoryBlock](), set[MemoryBlock](), set[MemoryBlock]()
        self.at_peak: Callable[[int], None] = lambda held: None

    def note_held(self, index: int, held: int) -> None:
        """Note one allocation; `held` is what the GPU holds with it."""
        if held >= self.most.get(self.phase, 0):
            self.most[self.phase] = held
            self.at_peak(held)

    def enter_phase(self, phase: Phase) -> None:
        """Begin a part of the step, which may hold most right at its start."""
        super().enter_phase(phase)
        if self.account is not None:
            simulation.ledger.settle_freed()
            self.note_held(0, self.account.held)

    def mark_gathered(self, storage: torch.UntypedStorage) -> None:
        """Note what is gathered, or a buffer of that."""
        block = block_of_storage(storage)
        if block is not None and block not in self.kept:
            self.of_gathering = (self.of_gathering | {block}) & list_blocks()
            self.most_gathered = max(self.most_gathered, sum(each.size for each in self.of_gathering))


class _GatheringMode(TorchDispatchMode):  # type: ignore[misc]
    """Sees what FSDP gathers, by its operators, and by storages that it empties and fills, as nothing else in a step does."""

    def __init__(self, watcher: RankWatcher) -> None:
        super().__init__()
        self._watcher = watcher

    def __enter__(self) -> Any:
        resize, watcher = torch.UntypedStorage.resize_, self._watcher

        def resize_watched(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize(storage, size)
            watcher.mark_gathered(storage)
            return result

        self._resize = resize
        torch.UntypedStorage.resize_ = resize_watched  # type: ignore[method-assign, assignment]
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*exc_info)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            # DTensor dispatches it, and it comes again for the local tensors.
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        if func.namespace == _OF_FSDP:
            for tensor in tree_leaves((result, kwargs)):
                if isinstance(tensor, torch.Tensor):
                    self._watcher.mark_gathered(tensor.untyped_storage())
        return result


_LEFT_OUT = "finished reduction in the prior iteration"
_OF_USED_PARAMETERS = "find_unused_parameters", "static_graph"
"""Options with which a reducer reads in each step which parameters took part."""


class _UnchangedReducer:
    """A reducer whose buckets stay as they were made: ranks that are not there agree on no other order of as many bytes."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        """Let torch refuse a step that has left parameters out, and refuse nothing else: next it would ask other ranks."""
        try:
            return bool(self._reducer._rebuild_buckets())
        except RuntimeError as error:
            if _LEFT_OUT in str(error):
                raise DevwidgetError(
                    Message("the step leaves out parameters, and DistributedDataParallel cannot start another one"),
                    why=Message("it waits for the gradients of all parameters that require one"),
                    instead=Message("call parameter.requires_grad_(False) on parameters that the loss does not depend on"),
                ) from None
            return False

    def _set_static_graph(self) -> None:
        """Refuse what `DistributedDataParallel._set_static_graph` sets after the model was wrapped."""
        raise _refuse_option("static_graph=True")


def _refuse_option(option: str) -> DevwidgetError:
    return DevwidgetError(
        Message("DistributedDataParallel with `{option}` cannot be planned", option=option),
        why=Message("it asks all ranks which parameters a step has used, and the ranks of a plan have no values to send"),
        instead=Message("plan without it, with a model whose every step uses all parameters"),
    )


def watch_replicas(watcher: RankWatcher) -> None:
    """Make every DDP without the other ranks from now on, and note its buckets; this process ends after the step."""
    made: Any = DistributedDataParallel.__init__

    def init_replica(self: Any, *args: Any, **kwargs: Any) -> None:
        before = set(list_blocks())
        # Else it compares the shapes of all ranks by their values.
        made(self, *args, **{**kwargs, "init_sync": False})
        for option in _OF_USED_PARAMETERS:
            if getattr(self, option):
                raise _refuse_option(f"{option}=True")
        watcher.of_buckets |= list_blocks() - before
        self.register_comm_hook(
            None, lambda _, bucket: _make_done_future(bucket.buffer())
        )  # the sum would be written into the bucket
        self.reducer = _UnchangedReducer(self.reducer)

    DistributedDataParallel.__init__ = init_replica  # type: ignore[method-assign]


def _make_done_future(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    result: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    result.set_result(tensor)
    return result


# The first makes what later ones find there, the second tells the peak, and the third what is held at it.
_STEPS = 3


@dataclass(frozen=True, slots=True)
class RankResult:
    """What one rank saw.

    Attributes:
        at: where it is in the mesh.
        shards: how its parameters are spread.
        plan: what it needs; which ranks are like it is not known here.
        ways: classes of torch that spread the model.
        passed: what a stage passes on.
    """

    at: At
    shards: tuple[Shard, ...]
    plan: RankPlan
    ways: tuple[str, ...] = ()
    passed: Passed | None = None


@dataclass(frozen=True, slots=True)
class RankStep:
    """What to run on every rank; see `run_in_fork`."""

    model: nn.Module
    inputs: Arguments
    loss_fn: Callable[..., Any] | None
    optimizer: Any
    mesh: Mesh
    parallelize: Callable[..., Any] | None
    microbatches: int
    loop: Loop
    checkpointing: bool | str
    cluster: VirtualMachine

    def run_rank(self, rank: int, given: Passed | None) -> RankResult:
        """Run the step as that rank."""
        watcher = RankWatcher()
        changed = prepare_checkpointing(Changed(), {"checkpointing": self.checkpointing})
        with place_copy(self.model, "as is", self.cluster, watcher, changed) as (copied, (watcher.account,)):
            join_fake_group(rank, self.mesh.ranks)
            mesh = init_device_mesh(virtual_gpu(0).type, self.mesh.sizes, mesh_dim_names=self.mesh.names)
            watch_replicas(watcher)
            part: Any = (self.parallelize or spread_by_default)(copied.inner, mesh)
            if not isinstance(part, nn.Module):
                part = copied.inner
            copied.placed = part
            # DDP puts `module.` before each name; the part inside has the names of the model.
            inner = part.module if isinstance(part, DistributedDataParallel) else part
            optimizer = remake_optimizer(self.model, inner, self.optimizer)
            # Later stages of a pipeline are sent theirs.
            inputs = self.inputs if given is None else Arguments((), {}, self.inputs.target)
            running = self._make_step(part, place_batch(copied, inputs, False), optimizer, given, mesh, watcher)
            # What other stages have goes now.
            copied.inner = nn.Module()
            with CurrentModule(part) as watcher.where:
                return _WatchedRank(part, optimizer, watcher).run_steps(self.mesh.coordinates_of(rank), running)

    def _make_step(
        self, part: nn.Module, inputs: Arguments, optimizer: Any, given: Passed | None, mesh: DeviceMesh, watcher: Watcher
    ) -> Any:
        if "pp" in self.mesh.names:
            stage = mesh["pp"].get_local_rank(), mesh["pp"].size()
            return StageStep(part, inputs, self.loss_fn, optimizer, stage, self.microbatches, given)
        return start_loop(self.loop, MeanStep(part, inputs, self.loss_fn, optimizer), watcher)


@dataclass
class _WatchedRank:
    part: nn.Module
    optimizer: torch.optim.Optimizer | None
    watcher: RankWatcher
    peak: int = 0
    peak_at: PlanMoment | None = None
    parts: dict[str, int] = field(default_factory=dict)

    def run_steps(self, at: At, running: Any) -> RankResult:
        """Run the step `_STEPS` times, from where the model is spread."""
        watcher, account = self.watcher, self.watcher.account
        assert account is not None
        shards = tuple(_describe_shard(parameter) for _, parameter in named_tensors(self.part, "_parameters"))
        watcher.kept = self._list_blocks(all_tensors(self.part))
        simulation.ledger.settle_freed()
        account.release_cache()
        account.reset_peaks()
        with _GatheringMode(watcher):
            for look in [watcher.at_peak] * (_STEPS - 1) + [self._note_peak]:
                watcher.most, watcher.at_peak = {}, look
                for phase, run in running.list_phases():
                    run_phase(phase, run, watcher)
                self.peak = max(watcher.most.values())
        phases = tuple(PhasePeak(phase, most) for phase, most in watcher.most.items())
        facts = {"most_gathered": watcher.most_gathered, "phases": phases, "peak_at": self.peak_at, "context": account.context}
        reserved = account.peak_in_segments
        plan = RankPlan((), account.capacity, self.peak, **self.parts, **facts, reserved=reserved)  # type: ignore[arg-type]
        return RankResult(at, shards, plan, _list_wrappers(self.part), getattr(running, "passed", None))

    def _note_peak(self, held: int) -> None:
        """Note what each byte is for, at the peak that the step before had, and at one beyond it."""
        if held < self.peak or held <= sum(self.parts.values()):
            return
        watcher, left = self.watcher, set(list_blocks())
        gradients = (parameter.grad for _, parameter in named_tensors(self.part, "_parameters"))
        states = self.optimizer.state.values() if self.optimizer is not None else ()
        found = {
            "parameters": watcher.kept,
            "optimizer": self._list_blocks(value for state in states for value in state.values()),
            "gathered": watcher.of_gathering,
            "buckets": watcher.of_buckets,
            "gradients": self._list_blocks(gradients),
            "activations": left,
        }
        for name, blocks in found.items():
            self.parts[name] = sum(block.size for block in blocks & left)
            left = left - blocks
        self.peak_at = PlanMoment(watcher.phase, watcher.where.path if watcher.where else None)

    @staticmethod
    def _list_blocks(values: Iterable[object]) -> set[MemoryBlock]:
        blocks = {block_of_storage(local_part(value).untyped_storage()) for value in values if is_tensor(value)}
        return {block for block in blocks if block is not None}


def join_fake_group(rank: int, ranks: int) -> None:
    """Join a process group as one of its ranks; its collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)


def _list_wrappers(part: nn.Module) -> tuple[str, ...]:
    words = (find_wrapping(type(module)).word for _, module in walk_modules(part))
    return tuple(dict.fromkeys(word for word in words if word in _SPREADING))


_SPREADING = ("DistributedDataParallel", "FSDP", "FSDP2")


def _describe_shard(parameter: torch.Tensor) -> Shard:
    if not isinstance(parameter, DTensor):
        return Shard(tuple(parameter.shape))
    spec: Any = parameter._spec
    return Shard(tuple(spec.shape), tuple(spec.mesh.mesh_dim_names), tuple(spec.mesh.shape), tuple(spec.placements))
