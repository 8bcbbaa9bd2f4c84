"""The step of one rank, in a process of its own: the model with fake tensors, spread over a mesh of fake ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from devwidget.capture.tensors import is_tensor, replace_tensors
from devwidget.capture.torch_internals import FakeStore, FakeTensorMode
from devwidget.planning.parallel.mesh import At, Mesh, Shard, spread_by_default
from devwidget.planning.parallel.pipeline import Passed, StageStep
from devwidget.planning.parallel.storages import StorageWatcher, watch_replicas
from devwidget.planning.rehearsal import MeanStep, remake_optimizer
from devwidget.records.plan import PlanMoment
from devwidget.records.ranks.parallel_plan import PhasePeak
from devwidget.records.trace import Phase

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

    def run_rank(self, rank: int, given: Passed | None) -> RankResult:
        """Run the step as that rank."""
        join_fake_group(rank, self.mesh.ranks)
        mesh = init_device_mesh("cpu", self.mesh.sizes, mesh_dim_names=self.mesh.names)
        fakes, before, storages = FakeTensorMode(allow_non_fake_inputs=True), _keep_names(self.model), StorageWatcher()
        given_inputs = self.inputs.args, self.inputs.kwargs, self.inputs.target
        inputs = Arguments(*replace_tensors(given_inputs, lambda tensor: _make_fake_like(tensor, fakes)))
        _fake_parameters(self.model, fakes)
        watch_replicas(fakes, storages)
        part = self._spread_model(mesh)
        # DDP puts `module.` before each name; the part inside has the names of the model.
        inner = part.module if isinstance(part, DistributedDataParallel) else part
        optimizer = remake_optimizer(before, inner, self.optimizer)
        running = self._make_step(part, inputs, optimizer, given, mesh)
        with fakes, CurrentModule(part) as where:
            return _WatchedRank(part, optimizer, where, storages).run_steps(self.mesh.coordinates_of(rank), running)

    def _spread_model(self, mesh: DeviceMesh) -> nn.Module:
        part = (self.parallelize or spread_by_default)(self.model, mesh)
        return part if isinstance(part, nn.Module) else self.model

    def _make_step(self, part: nn.Module, inputs: Arguments, optimizer: Any, given: Passed | None, mesh: DeviceMesh) -> Any:
        if "pp" in self.mesh.names:
            stage = mesh["pp"].get_local_rank(), mesh["pp"].size()
            return StageStep(part, inputs, self.loss_fn, optimizer, stage, self.microbatches, given)
        return MeanStep(part, inputs, self.loss_fn, optimizer)


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
        phases: tuple[PhasePeak, ...] = ()
        with self.storages:
            for look in [lambda: None] * (_STEPS - 1) + [self._note_peak]:
                self.storages.at_peak = look
                phases = tuple(self._run_phases(running))
                self.peak = max(each.bytes for each in phases)
        passed = getattr(running, "passed", None)
        facts = self.storages.most_gathered, phases, self.peak_at, _list_wrappers(self.part)
        return RankResult(at, shards, self.peak, self.parts, *facts, passed)

    def _run_phases(self, running: Any) -> Iterator[PhasePeak]:
        for phase, run in running.list_phases():
            self.phase = phase
            self.storages.begin_phase()
            run()
            yield PhasePeak(phase, self.storages.peak)

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
