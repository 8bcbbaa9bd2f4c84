"""The half of `plan` that needs torch: places a twin of the model on virtual GPUs and watches one step of it."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from devwidget import simulator
from devwidget.capture.refusals import refuse_model
from devwidget.capture.running.batch import Arguments, arguments
from devwidget.capture.running.restore import keeping
from devwidget.capture.running.step import Step
from devwidget.capture.running.whereabouts import Whereabouts
from devwidget.capture.tensors import replace_tensors
from devwidget.memory.accounting import block_bytes
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError, nearest
from devwidget.records.plan import DevicePlan, Plan, PlanMoment
from devwidget.records.trace import Phase
from devwidget.simulator.cluster import parse_cluster
from devwidget.simulator.twins import Twins, twin_of_model
from devwidget.simulator.watched_ledger import watch

Placement = str | Mapping[str, Any]
_UNLIMITED = 1 << 60
_FIRST = torch.device("cuda", 0)
_WORDS = ("as is", "data parallel", "auto")


@dataclass
class _Peak:
    """The most that one GPU held, and what of it was known."""

    held: int = 0
    gradients: int = 0
    optimizer: int = 0
    moment: PlanMoment | None = None
    tips_over: PlanMoment | None = None


@dataclass
class _Watcher:
    """Sees every allocation of the step, on every GPU."""

    capacities: Sequence[int]
    where: Whereabouts | None = None
    phase: Phase = "build"
    gradients: dict[int, int] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)
    optimizer: dict[int, int] = field(default_factory=dict)
    peaks: list[_Peak] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.peaks = [_Peak() for _ in self.capacities]

    def saw(self, index: int, held: int) -> None:
        """One allocation; `held` is what the GPU holds with it."""
        peak = self.peaks[index]
        if held < peak.held:  # of equal peaks the last counts: by then the optimizer has its state
            return
        moment = PlanMoment(self.phase, self.where.path if self.where else None)
        if held > self.capacities[index] and peak.tips_over is None:
            peak.tips_over = moment
        peak.held, peak.moment = held, moment
        peak.gradients, peak.optimizer = self.gradients.get(index, 0), self.optimizer.get(index, 0)

    def has_gradient(self, parameter: torch.Tensor) -> None:
        """A gradient has arrived at its parameter, for the first time or again."""
        gradient = parameter.grad
        if gradient is not None and gradient.is_cuda and id(parameter) not in self.arrived:
            self.arrived.add(id(parameter))
            index = gradient.get_device()
            size = block_bytes(gradient.untyped_storage().nbytes(), DeviceId("cuda", index))
            self.gradients[index] = self.gradients.get(index, 0) + size


class _TwinStep(Step):
    """A step whose loss of several replicas is one number, as users of DataParallel write `.mean()`."""

    def _loss(self, out: Any) -> Any:
        loss = Step._loss(self, out)
        several = self.loss_fn is None and isinstance(loss, torch.Tensor) and loss is not out and loss.dim() == 1
        return loss.mean() if several else loss


def make_plan(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int,
    memory: int | str | Sequence[int | str],
    loss_fn: Callable[..., Any] | None,
    target: Any,
    optimizer: torch.optim.Optimizer | type[torch.optim.Optimizer] | None,
    placement: Placement,
) -> Plan:
    """See `devwidget.plan`."""
    refuse_model(model)
    capacities = parse_cluster(gpus, memory, False).memory_bytes
    _refuse(optimizer, placement)
    inputs = arguments(model, batch, target=target, has_loss=loss_fn is not None)
    watcher = _Watcher(capacities)
    with keeping(nn.Module()), simulator.simulate(gpus, _UNLIMITED, compute=False):  # keeps the random state
        watch(watcher.saw)
        twin = _Twin(model, placement, capacities)
        weights = _bytes_by_gpu([*twin.inner.parameters(), *twin.inner.buffers()])
        phases = _run(twin, inputs, loss_fn, _optimizer_for(model, twin.inner, optimizer), watcher)
        twin.placed = twin.inner = nn.Module()  # its storages end before the simulation does
    devices = tuple(_device_plan(index, weights.get(index, 0), watcher) for index in range(gpus))
    name = placement if isinstance(placement, str) else "device map"
    return Plan(type(model).__name__, name, tuple(phases), devices, twin.device_map)


def _refuse(optimizer: object, placement: object) -> None:
    if simulator.active() is not None:
        raise DevwidgetError("virtual GPUs are running", why="a plan starts its own", instead="stop them first, then plan")
    kind = optimizer if isinstance(optimizer, type) else type(optimizer)
    if optimizer is not None and not issubclass(kind, torch.optim.Optimizer):
        raise DevwidgetError(f"the optimizer is a `{kind.__name__}`", instead="pass an optimizer or its class")
    if not isinstance(placement, Mapping) and placement not in _WORDS:
        raise DevwidgetError(
            f"{placement!r} is no placement{nearest(str(placement), _WORDS)}",
            instead=f"one of {', '.join(map(repr, _WORDS))}, or a dict such as {{'encoder': 0, 'head': 1}}",
        )
    if placement not in _WORDS[:2] and importlib.util.find_spec("accelerate") is None:
        raise DevwidgetError(
            "a device map needs accelerate",
            why="its hooks carry activations between the parts",
            instead="pip install accelerate",
        )


class _Twin:
    """The model again, placed on virtual GPUs.

    Attributes:
        inner: the copy, whose parameters have the names of the original's.
        placed: what is called: the copy, or its wrapper.
        device_map: the map that was used, if any.
        home: where the batch goes.
        last: where the output is expected, for the target.
    """

    def __init__(self, model: nn.Module, placement: Placement, capacities: Sequence[int]) -> None:
        self.device_map: tuple[tuple[str, str], ...] = ()
        as_is, mapped = placement == "as is", placement == "auto" or isinstance(placement, Mapping)
        there = any(parameter.is_cuda for parameter in model.parameters())
        bare = _FIRST if not mapped else torch.device("cpu")
        self.inner = self.placed = twin_of_model(
            model, lambda t: t.device if as_is and there else bare, lambda t: t.device if not t.is_meta else bare
        )
        devices = [parameter.device for parameter in self.inner.parameters() if parameter.is_cuda]
        self.home, self.last = (devices[0], devices[-1]) if devices and as_is else (_FIRST, _FIRST)
        if placement == "data parallel":
            self.placed = nn.DataParallel(self.inner, device_ids=list(range(len(capacities))))
        if mapped:
            self._dispatch(placement, capacities)

    def _dispatch(self, placement: Placement, capacities: Sequence[int]) -> None:
        import accelerate

        places = _proposed(self.inner, capacities) if isinstance(placement, str) else dict(placement)
        self.device_map = tuple((path, _name(place)) for path, place in places.items())
        used = [torch.device(name) for _, name in self.device_map if name.startswith("cuda")]
        if not used or "disk" in dict(self.device_map).values():
            raise DevwidgetError(f"a plan cannot use the device map {places}", why="it names no GPU, or the disk")
        self.home = self.last = used[0]
        self.placed = self.inner = accelerate.dispatch_model(self.inner, places, main_device=self.home, force_hooks=True)


def _proposed(twin: nn.Module, capacities: Sequence[int]) -> dict[str, Any]:
    import accelerate
    from accelerate.utils import get_balanced_memory

    room: dict[int | str, int | str] = {**dict(enumerate(capacities)), "cpu": _UNLIMITED}
    whole = list(getattr(twin, "_no_split_modules", None) or [])
    room = get_balanced_memory(twin, room, no_split_module_classes=whole)
    places: dict[str, Any] = accelerate.infer_auto_device_map(twin, room, no_split_module_classes=whole)
    return places


def _name(place: Any) -> str:
    return f"cuda:{place}" if isinstance(place, int) else str(place)


def _bytes_by_gpu(tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    storages = {tensor.untyped_storage()._cdata: tensor for tensor in tensors if tensor.is_cuda}
    sums: dict[int, int] = {}
    for tensor in storages.values():
        size = block_bytes(tensor.untyped_storage().nbytes(), DeviceId("cuda", tensor.get_device()))
        sums[tensor.get_device()] = sums.get(tensor.get_device(), 0) + size
    return sums


def _optimizer_for(model: nn.Module, twin: nn.Module, optimizer: Any) -> torch.optim.Optimizer | None:
    """An optimizer of the same class and settings for the twin; groups are matched by the names of parameters."""
    if optimizer is None:
        return None
    parameters = dict(twin.named_parameters())
    if isinstance(optimizer, type):
        made: torch.optim.Optimizer = optimizer(parameters.values())
        return made
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [
        {**group, "params": [parameters[names[id(p)]] for p in group["params"] if id(p) in names]}
        for group in optimizer.param_groups
    ]
    known = inspect.signature(type(optimizer)).parameters
    same: torch.optim.Optimizer = type(optimizer)(groups, **{k: v for k, v in optimizer.defaults.items() if k in known})
    return same


def _run(
    twin: _Twin, inputs: Arguments, loss_fn: Any, optimizer: torch.optim.Optimizer | None, watcher: _Watcher
) -> list[Phase]:
    """Run the step; with an optimizer twice, because from the second on its state is there during backward."""
    home, last = Twins(lambda tensor: twin.home), Twins(lambda tensor: twin.last)
    args, kwargs = replace_tensors((inputs.args, inputs.kwargs), home.of)
    step = _TwinStep(twin.placed, Arguments(args, kwargs, replace_tensors(inputs.target, last.of)), _there(loss_fn), optimizer)
    phases: list[Phase] = []
    with Whereabouts(twin.inner) as watcher.where, _gradients_counted(twin.inner, watcher):
        for _ in range(1 if optimizer is None else 2):
            phases = _once(step, watcher)
            if optimizer is not None:
                states = (value for state in optimizer.state.values() for value in state.values())
                watcher.optimizer = _bytes_by_gpu([value for value in states if isinstance(value, torch.Tensor)])
    return phases


def _there(loss_fn: Any) -> Any:
    """A loss that is a module has tensors too, such as class weights."""
    if not isinstance(loss_fn, nn.Module):
        return loss_fn
    return twin_of_model(loss_fn, lambda tensor: _FIRST, lambda tensor: _FIRST)


def _once(step: Step, watcher: _Watcher) -> list[Phase]:
    phases: list[Phase] = []
    for phase, run in step.phases():
        watcher.phase = phase
        if phase == "forward":
            watcher.gradients, watcher.arrived = {}, set()
        try:
            run()
        except RuntimeError as error:
            raise DevwidgetError(f"the {phase} fails in this placement: {error}", why="the plan runs the step once") from error
        phases.append(phase)
    return phases


@contextlib.contextmanager
def _gradients_counted(twin: nn.Module, watcher: _Watcher) -> Iterator[None]:
    """Count each gradient as it arrives at its parameter."""
    parameters: list[Any] = [parameter for parameter in twin.parameters() if parameter.requires_grad]
    handles = [parameter.register_post_accumulate_grad_hook(watcher.has_gradient) for parameter in parameters]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _device_plan(index: int, weights: int, watcher: _Watcher) -> DevicePlan:
    peak = watcher.peaks[index]
    # A gradient may be one with an activation, and weights are not all there before the step.
    weights = min(weights, peak.held)
    gradients = min(peak.gradients, peak.held - weights)
    optimizer = min(peak.optimizer, peak.held - weights - gradients)
    rest = peak.held - weights - gradients - optimizer
    device = DeviceId("cuda", index)
    capacity = watcher.capacities[index]
    return DevicePlan(device, capacity, peak.held, weights, gradients, optimizer, rest, peak.moment, peak.tips_over)
