"""Places the model and its batch, without values, on virtual GPUs as the user asks."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from devwidget import simulator
from devwidget.capture.modules import named_tensors, own_tensors, walk_modules
from devwidget.capture.object_fields import fields_of, find_class_attribute, is_a, parts_of
from devwidget.capture.restore import keep_state
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import DEEPEST, is_tensor, replace_tensors
from devwidget.planning.changes import Changed
from devwidget.planning.child_process import original_device
from devwidget.planning.watcher import Watcher, is_on_gpu, virtual_gpu
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.schema.message import Message
from devwidget.simulator.cluster import UNLIMITED, VirtualMachine
from devwidget.simulator.devices.labels import CPU_DEVICE
from devwidget.simulator.devices.ledger import Account
from devwidget.simulator.devices.ledger_listeners import watch_allocations
from devwidget.simulator.without_values.meta_copies import MetaCopies, meta_copy_of_model

Placement = str | Mapping[str, Any]


@contextlib.contextmanager
def place_copy(
    model: nn.Module, placement: Placement, cluster: VirtualMachine, watcher: Watcher, changed: Changed
) -> Iterator[tuple[PlacedCopy, tuple[Account, ...]]]:
    """Yield a copy on virtual GPUs and their accounts; it ends before they do, and the random state is kept."""
    with keep_state(nn.Module()), simulator.Simulation(cluster):
        accounts = watch_allocations(watcher.note_allocation, watcher.note_refusal, watcher.note_guess)
        copied = PlacedCopy(model, placement, cluster.memory_bytes, watcher, changed)
        try:
            yield copied, accounts
        finally:
            # The storages go before their GPUs do, whoever still holds `copied`.
            copied.placed = copied.inner = nn.Module()
            watcher.forget_modules()


class PlacedCopy:
    """A copy of a model on virtual GPUs.

    Attributes:
        inner: the copy, whose parameters have the names of the original's.
        placed: what is called: the copy, or its wrapper.
        device_map: the map that was used, if any.
        home: where the batch goes.
        last: where the output is expected, for the target.

    Args:
        changed: what the copy does otherwise.
    """

    def __init__(
        self, model: nn.Module, placement: Placement, capacities: Sequence[int], watcher: Watcher, changed: Changed
    ) -> None:
        self.device_map: tuple[tuple[str, str], ...] = ()
        as_is, mapped = placement == "as is", placement == "auto" or isinstance(placement, Mapping)
        there = any(
            original_device(parameter).type == virtual_gpu(0).type for _, parameter in named_tensors(model, "_parameters")
        )
        bare = virtual_gpu(0) if not mapped else torch.device("cpu")
        owners = {id(tensor): path for path, module in walk_modules(model) for tensor in own_tensors(module).values()}

        def place_trained(tensor: torch.Tensor) -> torch.device:
            watcher.placing = owners.get(id(tensor))
            return original_device(tensor) if as_is and there else bare

        def place_plain(tensor: torch.Tensor) -> torch.device:
            return bare if original_device(tensor).type == "meta" else original_device(tensor)

        self.inner = self.placed = meta_copy_of_model(model, place_trained, place_plain, changed.dtype)
        changed.prepare(self.inner)
        watcher.placing = None
        devices = [parameter.device for _, parameter in named_tensors(self.inner, "_parameters") if is_on_gpu(parameter)]
        self.home, self.last = (devices[0], devices[-1]) if devices and as_is else (virtual_gpu(0), virtual_gpu(0))
        if placement == "data parallel":
            self.placed = nn.DataParallel(self.inner, device_ids=list(range(len(capacities))))
        if mapped:
            self._dispatch_parts(placement, capacities)

    def _dispatch_parts(self, placement: Placement, capacities: Sequence[int]) -> None:
        import accelerate

        places = propose_device_map(self.inner, capacities) if isinstance(placement, str) else dict(placement)
        self.device_map = tuple(
            (path, str(virtual_gpu(place) if isinstance(place, int) else place)) for path, place in places.items()
        )
        used = [torch.device(name) for _, name in self.device_map if name.startswith(virtual_gpu(0).type)]
        if not used or "disk" in dict(self.device_map).values():
            raise DevwidgetError(
                Message("a plan cannot use the device map {places}", places=places), why=Message("it names no GPU, or the disk")
            )
        self.home = self.last = used[0]
        # A map may name tensors, as those that accelerate proposes do.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The following device_map keys do not match any submodules")
            self.placed = self.inner = accelerate.dispatch_model(self.inner, places, main_device=self.home, force_hooks=True)


def propose_device_map(model: nn.Module, capacities: Sequence[int]) -> dict[str, Any]:
    """Return the device map of accelerate for GPUs of these sizes; raise DevwidgetError if it has none."""
    import accelerate
    from accelerate.utils import get_balanced_memory

    room: dict[int | str, int | str] = {**dict(enumerate(capacities)), "cpu": UNLIMITED}
    whole = list(getattr(model, "_no_split_modules", None) or [])
    try:
        room = get_balanced_memory(model, room, no_split_module_classes=whole)
        places: dict[str, Any] = accelerate.infer_auto_device_map(model, room, no_split_module_classes=whole)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        facts = {"kind": type(model).__name__, "error": error_text(error)}
        what = Message("accelerate proposes no device map for {kind}: {error}", **facts)
        raise DevwidgetError(what, instead=Message("placement={'encoder': 0, 'head': 1}, a map of your own")) from error
    return places


class LengthsOnGpu(DevwidgetError):
    """A model packs sequences by the lengths that it is given, which CUDA wants on the CPU."""


Result = TypeVar("Result")


def retry_with_lengths(run: Callable[[bool], Result]) -> Result:
    """Run with all of the batch on GPUs; where lengths have to stay on the CPU, call `run(True)` in its place."""
    try:
        return run(False)
    except LengthsOnGpu:
        return run(True)


def place_batch(copied: PlacedCopy, inputs: Arguments, lengths_stay: bool) -> Arguments:
    """Copy the batch to where the copy of the model expects it."""
    packed = {id(sizes) for sizes in find_step_sizes((inputs.args, inputs.kwargs, inputs.target))}
    cpu = MetaCopies(lambda tensor: CPU_DEVICE)

    def copy_to(device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
        there = MetaCopies(lambda tensor: device)

        def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
            # The sizes of a packed batch are read by C++ from their memory, so they keep their values.
            if id(tensor) in packed:
                return tensor
            may_be_lengths = lengths_stay and tensor.dtype == torch.int64 and tensor.dim() == 1
            return (
                cpu.copy_tensor(tensor)
                if may_be_lengths and original_device(tensor).type == "cpu"
                else there.copy_tensor(tensor)
            )

        return copy_tensor

    def place_value(value: Any, device: torch.device) -> Any:
        placed = replace_tensors(value, copy_to(device))
        return _copy_object(value, copy_to(device)) if placed is value else placed

    args = tuple(place_value(value, copied.home) for value in inputs.args)
    kwargs = {name: place_value(value, copied.home) for name, value in inputs.kwargs.items()}
    return Arguments(args, kwargs, place_value(inputs.target, copied.last))


def _copy_object(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A batch of a class of its own that a loop would move by its `to`: a copy with other tensors, for some move themselves."""
    if is_a(value, (nn.Module, torch.Tensor)) or find_class_attribute(type(value), "to") is None:
        return value
    return copy.deepcopy(value, {id(tensor): change(tensor) for tensor in _find_tensors(value)})


def _find_tensors(value: Any, depth: int = DEEPEST) -> Iterator[torch.Tensor]:
    """The tensors of an object, of its fields too."""
    if is_tensor(value):
        yield value
    elif depth and not is_a(value, nn.Module):
        for part in (*parts_of(value), *(field for _, field in fields_of(value))):
            yield from _find_tensors(part, depth - 1)


def find_step_sizes(value: Any, depth: int = DEEPEST) -> Iterator[torch.Tensor]:
    """Yield, for each packed batch, how many sequences have each step: on the CPU wherever the batch is."""
    if issubclass(type(value), PackedSequence):
        yield value.batch_sizes
    elif depth and not is_tensor(value):
        for part in parts_of(value):
            yield from find_step_sizes(part, depth - 1)
