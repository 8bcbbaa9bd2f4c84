"""The step of one rank, in a process of its own, with fake tensors over a mesh of fake ranks: every storage is watched."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from devwidget.capture.modules import TENSOR_GROUPS, all_tensors, named_tensors, own, registered_entries, walk_modules
from devwidget.capture.snapshot.wrapper_facts import find_wrapping
from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.current_module import CurrentModule
from devwidget.capture.tensors import is_tensor, replace_tensors, tensors_in
from devwidget.capture.torch_internals import FakeStore, FakeTensorMode, TorchDispatchMode, tree_leaves
from devwidget.distributed.rank_tensors import local_part
from devwidget.memory import block_bytes
from devwidget.planning.changes import recompute_blocks
from devwidget.planning.loops import Loop, MeanStep, RunningLoop
from devwidget.planning.parallel.mesh import At, Mesh, Shard, spread_by_default
from devwidget.planning.parallel.pipeline import Passed, StageStep
from devwidget.planning.rehearsal import remake_optimizer
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.plan import PlanMoment
from devwidget.records.ranks.parallel_plan import PhasePeak
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase

_GPU = DeviceId("cuda", 0)
# Operators of this namespace fill the buffers of FSDP2's collectives.
_OF_FSDP = "fsdp"


@dataclass
class StorageWatcher(TorchDispatchMode):  # type: ignore[misc]
    """Sees every operator below DTensor, and with it every storage; sizes are those of CUDA's blocks.

    Attributes:
        held: bytes, now.
        peak: the most since `begin_phase`.
        gathered: bytes of parameters that are gathered, and buffers of that.
        most_gathered: the most of these.
        of_buckets: in which DDP has the gradients that it adds up over the ranks.
        at_peak: called whenever `peak` rises.
    """

    held: int = 0
    peak: int = 0
    gathered: int = 0
    most_gathered: int = 0
    at_peak: Callable[[], None] = lambda: None
    live: dict[int, int] = field(default_factory=dict)
    of_gathering: set[int] = field(default_factory=set)
    of_buckets: set[int] = field(default_factory=set)
    kept: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        super().__init__()

    def __enter__(self) -> StorageWatcher:
        resize, storages = torch.UntypedStorage.resize_, self

        def resize_watched(storage: torch.UntypedStorage, size: int) -> Any:
            """Resize as FSDP2 does, which empties and fills what it gathers by this; nothing else in a step does."""
            result = resize(storage, size)
            storages._add_storage(storage)
            storages._mark_gathered(storage)
            storages._measure_storage(storage)
            return result

        self._resize = resize
        torch.UntypedStorage.resize_ = resize_watched  # type: ignore[method-assign, assignment]  # this process ends after the step
        super().__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*exc_info)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            # DTensor dispatches it, and it comes again for the local tensors.
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._add_storage(tensor.untyped_storage())
        if func.namespace == _OF_FSDP:
            for tensor in tree_leaves((result, kwargs)):
                if isinstance(tensor, torch.Tensor):
                    self._mark_gathered(tensor.untyped_storage())
        return result

    def add_tensors(self, tensors: Iterable[torch.Tensor]) -> list[torch.UntypedStorage]:
        """Count tensors that are there before the step, such as the batch."""
        storages = [local_part(tensor).untyped_storage() for tensor in tensors]
        for storage in storages:
            self._add_storage(storage)
        return storages

    def keep_tensors(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the model's tensors, which stay."""
        self.kept = frozenset(storage._cdata for storage in self.add_tensors(tensors))

    def begin_phase(self) -> None:
        """Start the peak of a part of the step, which may hold most right at its start."""
        self.peak = self.held
        self.at_peak()

    def count_bytes(self, tensors: Iterable[torch.Tensor], known: set[int]) -> int:
        """Return the bytes of tensors, each storage once and without `known` ones, and add them to `known`."""
        total = 0
        for tensor in tensors:
            key = local_part(tensor).untyped_storage()._cdata
            if key not in known:
                known.add(key)
                total += self.live.get(key, 0)
        return total

    def _add_storage(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.live:
            self.live[key] = 0
            # An address is used again, so the entry goes with its storage; when Python ends nobody asks any more.
            weakref.finalize(storage, self._forget_storage, key).atexit = False
            self._measure_storage(storage)

    def _measure_storage(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, block_bytes(storage.nbytes(), _GPU)
        self._change_size(key, size - self.live[key])
        if self.held > self.peak:
            self.peak = self.held
            self.at_peak()

    def _change_size(self, key: int, more: int) -> None:
        self.live[key] += more
        self.held += more
        if key in self.of_gathering:
            self.gathered += more
            self.most_gathered = max(self.most_gathered, self.gathered)

    def _mark_gathered(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.of_gathering and key in self.live and key not in self.kept:
            self.of_gathering.add(key)
            self.gathered += self.live[key]
            self.most_gathered = max(self.most_gathered, self.gathered)

    def _forget_storage(self, key: int) -> None:
        self._change_size(key, -self.live[key])
        del self.live[key]
        self.of_gathering.discard(key)
        self.of_buckets.discard(key)


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
                    Message("the step leaves out parameters, and DistributedDataParallel begins no other after it"),
                    why=Message("it waits for the gradients of all that require any"),
                    instead=Message("parameter.requires_grad_(False) for those that no loss depends on"),
                ) from None
            return False

    def _set_static_graph(self) -> None:
        """Refuse what `DistributedDataParallel._set_static_graph` sets after the model was wrapped."""
        raise _refuse_option("static_graph=True")


def _refuse_option(option: str) -> DevwidgetError:
    return DevwidgetError(
        Message("DistributedDataParallel with `{option}` cannot be planned", option=option),
        why=Message("it asks all ranks which parameters a step has used, and those of a plan have no values to tell"),
        instead=Message("plan without it, with a model of which each step uses every parameter"),
    )


def watch_replicas(fakes: Any, storages: StorageWatcher) -> None:
    """Make every DDP of fake tensors from now on, and note its buckets; this process ends after the step."""
    made: Any = DistributedDataParallel.__init__

    def init_replica(self: Any, *args: Any, **kwargs: Any) -> None:
        before = set(storages.live)
        with fakes, storages:
            # Else it compares the shapes of all ranks by their values.
            made(self, *args, **{**kwargs, "init_sync": False})
        for option in _OF_USED_PARAMETERS:
            if getattr(self, option):
                raise _refuse_option(f"{option}=True")
        storages.of_buckets |= storages.live.keys() - before
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
    """What one rank saw, in bytes; see `RankPlan`."""

    at: At
    shards: tuple[Shard, ...]
    peak: int
    parts: dict[str, int]
    most_gathered: int
    phases: tuple[PhasePeak, ...]
    peak_at: PlanMoment | None
    ways: tuple[str, ...] = ()
    passed: Passed | None = None


@dataclass(frozen=True, slots=True)
class RankStep:
    """What to run on every rank. It changes the model: see `run_in_fork`."""

    model: nn.Module
    inputs: Arguments
    loss_fn: Callable[..., Any] | None
    optimizer: Any
    mesh: Mesh
    parallelize: Callable[..., Any] | None
    microbatches: int
    loop: Loop
    checkpointing: bool | str

    def run_rank(self, rank: int, given: Passed | None) -> RankResult:
        """Run the step as that rank."""
        join_fake_group(rank, self.mesh.ranks)
        mesh = init_device_mesh("cpu", self.mesh.sizes, mesh_dim_names=self.mesh.names)
        fakes, before, storages = FakeTensorMode(allow_non_fake_inputs=True), _keep_names(self.model), StorageWatcher()
        given_inputs = self.inputs.args, self.inputs.kwargs, self.inputs.target
        inputs = Arguments(*replace_tensors(given_inputs, lambda tensor: _make_fake_like(tensor, fakes)))
        _fake_parameters(self.model, fakes)
        watch_replicas(fakes, storages)
        if self.checkpointing:
            recompute_blocks(self.model, self.checkpointing == "reentrant")
        part = self._spread_model(mesh)
        # DDP puts `module.` before each name; the part inside has the names of the model.
        inner = part.module if isinstance(part, DistributedDataParallel) else part
        optimizer = remake_optimizer(before, inner, self.optimizer)
        if optimizer is not None:
            _step_together(optimizer)
        running = self._make_step(part, inputs, optimizer, given, mesh)
        if given is None:  # later stages of a pipeline are sent theirs
            storages.add_tensors(tensors_in((inputs.args, inputs.kwargs, inputs.target)))
        with fakes, CurrentModule(part) as where:
            return _WatchedRank(part, optimizer, where, storages).run_steps(self.mesh.coordinates_of(rank), running)

    def _spread_model(self, mesh: DeviceMesh) -> nn.Module:
        part = (self.parallelize or spread_by_default)(self.model, mesh)
        return part if isinstance(part, nn.Module) else self.model

    def _make_step(self, part: nn.Module, inputs: Arguments, optimizer: Any, given: Passed | None, mesh: DeviceMesh) -> Any:
        if "pp" in self.mesh.names:
            stage = mesh["pp"].get_local_rank(), mesh["pp"].size()
            return StageStep(part, inputs, self.loss_fn, optimizer, stage, self.microbatches, given)
        return RunningLoop(self.loop, MeanStep(part, inputs, self.loss_fn, optimizer))


@dataclass
class _WatchedRank:
    """One part of a model while it runs."""

    part: nn.Module
    optimizer: torch.optim.Optimizer | None
    where: CurrentModule
    storages: StorageWatcher
    phase: Phase = "build"
    peak: int = 0
    peak_at: PlanMoment | None = None
    parts: dict[str, int] = field(default_factory=dict)

    def run_steps(self, at: At, running: Any) -> RankResult:
        """Run the step `_STEPS` times."""
        shards = tuple(_describe_shard(parameter) for _, parameter in named_tensors(self.part, "_parameters"))
        self.storages.keep_tensors(all_tensors(self.part))
        phases = dict[Phase, int]()
        with self.storages:
            for look in [lambda: None] * (_STEPS - 1) + [self._note_peak]:
                self.storages.at_peak = look
                phases = self._run_phases(running)
                self.peak = max(phases.values())
        passed = getattr(running, "passed", None)
        peaks = tuple(PhasePeak(phase, most) for phase, most in phases.items())
        facts = self.storages.most_gathered, peaks, self.peak_at, _list_wrappers(self.part)
        return RankResult(at, shards, self.peak, self.parts, *facts, passed)

    def _run_phases(self, running: Any) -> dict[Phase, int]:
        """Run one step; the most that each phase held, which of accumulated batches there are several."""
        most = dict[Phase, int]()
        for phase, run in running.list_phases():
            self.phase = phase
            self.storages.begin_phase()
            run()
            most[phase] = max(most.get(phase, 0), self.storages.peak)
        return most

    def _note_peak(self) -> None:
        """Note, once and at the peak that the step before had, what each byte is for."""
        if self.parts or not self.peak or self.storages.held < self.peak:
            return
        storages, known = self.storages, set[int]()
        parameters = [parameter for _, parameter in named_tensors(self.part, "_parameters")]
        kept = sum(storages.live.get(key, 0) for key in storages.kept)
        known |= storages.kept
        states = self.optimizer.state.values() if self.optimizer is not None else ()
        optimizer = storages.count_bytes((each for state in states for each in state.values() if is_tensor(each)), known)
        gathered = sum(storages.live.get(key, 0) for key in storages.of_gathering - known)
        known |= storages.of_gathering
        buckets = sum(storages.live.get(key, 0) for key in storages.of_buckets - known)
        known |= storages.of_buckets
        gradients = storages.count_bytes((each.grad for each in parameters if each.grad is not None), known)
        rest = storages.held - kept - optimizer - gathered - buckets - gradients
        self.parts = {"parameters": kept, "optimizer": optimizer, "gathered": gathered, "buckets": buckets}
        self.parts |= {"gradients": gradients, "activations": rest}
        self.peak_at = PlanMoment(self.phase, self.where.path)


def _step_together(optimizer: torch.optim.Optimizer) -> None:
    """Step for all parameters together where nothing is asked for: by itself torch does so on a GPU, and not on the CPU."""
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and not group.get("fused") and not group.get("differentiable"):
            group["foreach"] = True


def join_fake_group(rank: int, ranks: int) -> None:
    """Join a process group as one of its ranks; its collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)


def _list_wrappers(part: nn.Module) -> tuple[str, ...]:
    """Name the classes of torch by which a part was spread."""
    words = (find_wrapping(type(module)).word for _, module in walk_modules(part))
    return tuple(dict.fromkeys(word for word in words if word in _SPREADING))


_SPREADING = ("DistributedDataParallel", "FSDP", "FSDP2")


def _describe_shard(parameter: torch.Tensor) -> Shard:
    if not isinstance(parameter, DTensor):
        return Shard(tuple(parameter.shape))
    spec: Any = parameter._spec
    return Shard(tuple(spec.shape), tuple(spec.mesh.mesh_dim_names), tuple(spec.mesh.shape), tuple(spec.placements))


def _keep_names(model: nn.Module) -> nn.Module:
    """Return a module with the names of the model's parameters, to be asked for them when these are gone."""
    names = nn.Module()
    names._parameters.update(dict(named_tensors(model, "_parameters")))  # type: ignore[arg-type]
    return names


def _make_fake_like(tensor: torch.Tensor, fakes: Any) -> torch.Tensor:
    """Make a fake tensor of the same shape on the CPU, the one device that needs nothing; also of one on meta."""
    with fakes:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(tensor.requires_grad)


def _fake_parameters(model: nn.Module, fakes: Any) -> None:
    """Put fake tensors in the place of parameters and buffers; tied ones stay tied."""
    made: dict[int, torch.Tensor] = {}
    for _, module in walk_modules(model):
        for group in TENSOR_GROUPS:
            for name, tensor in registered_entries(module, group):
                if id(tensor) not in made:
                    like = _make_fake_like(tensor.detach(), fakes)
                    made[id(tensor)] = nn.Parameter(like, tensor.requires_grad) if group == "_parameters" else like
                own(module)[group][name] = made[id(tensor)]
