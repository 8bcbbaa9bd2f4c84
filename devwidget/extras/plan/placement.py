"""Copies the model and its batch, without values, and places the copies on virtual GPUs as the user asks."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from devwidget import gpus
from devwidget.capture.object_fields import fields_of, find_class_attribute, is_a, parts_of
from devwidget.capture.restore import keep_state
from devwidget.capture.restore.settings import leave_autocast
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import (
    DEEPEST,
    all_tensors,
    is_tensor,
    named_tensors,
    own,
    own_tensors,
    replace_tensors,
    tensors_in,
    walk_modules,
)
from devwidget.extras.meta.known_values import is_small, keep_storage, keep_values
from devwidget.extras.plan.changes import Changed
from devwidget.extras.plan.child_process import original_device
from devwidget.extras.plan.watcher import Watcher, is_on_gpu, virtual_gpu
from devwidget.gpus.labels import CPU_DEVICE, real_device
from devwidget.gpus.machine import watch_allocations
from devwidget.gpus.state import Account
from devwidget.gpus.torch_internals import DisableTorchFunction
from devwidget.gpus.virtual_machine import UNLIMITED, VirtualMachine
from devwidget.records.errors import DevwidgetError, error_text, message
from devwidget.records.schema.message import Message

Where = Callable[[torch.Tensor], torch.device]


class MetaCopies:
    """Makes tensors without values; what shares a storage shares it again, unless it has to be moved, as `.to` does.

    Args:
        where: the device on which the copy of a tensor is to be.
        dtype: of copies of floating numbers; None for that of the tensor.
    """

    def __init__(self, where: Where, dtype: torch.dtype | None = None) -> None:
        self._where, self._dtype = where, dtype
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """The copy of one tensor; if it is small and no parameter, its values are known."""
        device = self._where(tensor)
        if tensor.layout != torch.strided:
            return tensor.detach().to(device, copy=True)
        dtype = self._dtype if self._dtype is not None and tensor.is_floating_point() else tensor.dtype
        if tensor.device == device and dtype == tensor.dtype:
            return self._share_storage(tensor)
        copied = torch.empty_like(tensor, device=device, dtype=dtype)
        if _is_knowable(tensor) and is_small(tensor):
            keep_values(copied, tensor)
        return copied

    def _share_storage(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        # An address would be 0 for all that is on meta.
        key = storage._cdata, tensor.dtype
        if key not in self._bases:
            base = torch.empty(storage.nbytes() // tensor.element_size(), dtype=tensor.dtype, device=tensor.device)
            if _is_knowable(tensor):
                keep_storage(base, storage)
            self._bases[key] = base
        return self._bases[key].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _is_knowable(tensor: torch.Tensor) -> bool:
    # A mode of ours would answer with the device that the user sees: the cpu.
    with DisableTorchFunction():
        has_values = real_device(tensor).type != "meta"
    return has_values and not (tensor.requires_grad or isinstance(tensor, nn.Parameter))


def meta_copy_of_model(
    model: nn.Module, where_registered: Where, where_plain: Where, dtype: torch.dtype | None = None
) -> nn.Module:
    """A copy of a model whose tensors have no values and no gradients.

    Args:
        where_registered: device for the copy of a parameter or buffer.
        where_plain: device for the copy of a tensor in a plain attribute.
        dtype: of registered floating numbers; None for those that they have.

    Raises:
        DevwidgetError: for a model with lazy parameters, or one that cannot be copied.
    """
    memo: dict[int, Any] = {}
    registered = MetaCopies(where_registered, dtype)
    for tensor in all_tensors(model):
        if is_lazy(tensor):
            raise DevwidgetError(Message("a lazy parameter has no shape yet"), instead=Message("run the model once, then plan"))
        memo[id(tensor)] = _wrap_like(tensor, registered.copy_tensor(tensor))
    plain = MetaCopies(where_plain)
    for tensor in _plain_tensors(model):
        if id(tensor) not in memo:
            memo[id(tensor)] = _wrap_like(tensor, plain.copy_tensor(tensor))
    try:
        return copy.deepcopy(model, memo)
    except (TypeError, RuntimeError) as error:
        fails = Message("{kind} cannot be copied: {error}", kind=type(model).__name__, error=message(error))
        raise DevwidgetError(fails, why=Message("the plan runs on a copy")) from error


def _plain_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    for _, module in walk_modules(model):
        yield from tensors_in([value for key, value in own(module).items() if key not in ("_parameters", "_buffers")])


def _wrap_like(tensor: torch.Tensor, copied: torch.Tensor) -> torch.Tensor:
    """A parameter for a parameter, with the attributes that programs hang on it."""
    if isinstance(tensor, nn.Parameter):
        copied = nn.Parameter(copied, requires_grad=tensor.requires_grad)
    elif tensor.requires_grad:
        copied = copied.requires_grad_()
    copied.__dict__.update(tensor.__dict__)
    return copied


AskedPlacement = str | Mapping[str, Any]


@contextlib.contextmanager
def place_copy(
    model: nn.Module, placement: AskedPlacement, cluster: VirtualMachine, watcher: Watcher, changed: Changed
) -> Iterator[tuple[PlacedCopy, tuple[Account, ...]]]:
    """Yield a copy on virtual GPUs and their accounts; it ends before they do, and the random state is kept."""
    with keep_state(nn.Module()), gpus.Simulation(cluster):
        # What is active around the call is for the forwards of the loop, which know of it.
        leave_autocast()
        accounts = watch_allocations(watcher, watcher.note_guess)
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
        self, model: nn.Module, placement: AskedPlacement, capacities: Sequence[int], watcher: Watcher, changed: Changed
    ) -> None:
        self.device_map: tuple[tuple[str, str], ...] = ()
        stays = placement == "as is" and any(original_device(each).type == virtual_gpu(0).type for each in _parameters(model))
        bare = virtual_gpu(0) if placement in ("as is", "data parallel") else torch.device("cpu")
        owners = {id(tensor): path for path, module in walk_modules(model) for tensor in own_tensors(module).values()}

        def place_trained(tensor: torch.Tensor) -> torch.device:
            watcher.placing = owners.get(id(tensor))
            return original_device(tensor) if stays else bare

        def place_plain(tensor: torch.Tensor) -> torch.device:
            device = original_device(tensor)
            return bare if device.type == "meta" else device

        self.inner = self.placed = meta_copy_of_model(model, place_trained, place_plain, changed.dtype)
        changed.prepare(self.inner)
        watcher.placing = None
        self.home = self.last = virtual_gpu(0)
        if placement == "as is":
            devices = [parameter.device for parameter in _parameters(self.inner) if is_on_gpu(parameter)]
            if devices:
                self.home, self.last = devices[0], devices[-1]
        elif placement == "data parallel":
            self.placed = nn.DataParallel(self.inner, device_ids=list(range(len(capacities))))
        else:
            self._dispatch_parts(placement, capacities)

    def _dispatch_parts(self, placement: AskedPlacement, capacities: Sequence[int]) -> None:
        import accelerate

        if isinstance(placement, str):
            places = propose_device_map(self.inner, capacities)
        else:
            places = dict(placement)
        used: list[torch.device] = []
        for path, place in places.items():
            name = str(virtual_gpu(place) if isinstance(place, int) else place)
            self.device_map += ((path, name),)
            if name == "disk":
                raise _unusable_map(places, Message("it names no GPU, or the disk"))
            used += [torch.device(name)] if name.startswith(virtual_gpu(0).type) else []
        if not used:
            raise _unusable_map(places, Message("it names no GPU, or the disk"))
        last = max(used, key=lambda device: device.index or 0)
        if (last.index or 0) >= len(capacities):
            facts = {"device": str(last), "count": len(capacities)}
            raise _unusable_map(places, Message("it names {device}, but the plan is for {count} GPUs", **facts))
        self.home = self.last = used[0]
        # A map may name tensors, as those that accelerate proposes do.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The following device_map keys do not match any submodules")
            try:
                self.placed = accelerate.dispatch_model(self.inner, places, main_device=self.home, force_hooks=True)
            except ValueError as error:
                raise _unusable_map(places, message(error)) from error
            self.inner = self.placed


def _parameters(model: nn.Module) -> Iterator[torch.Tensor]:
    return (parameter for _, parameter in named_tensors(model, "_parameters"))


def _unusable_map(places: Mapping[str, Any], why: str) -> DevwidgetError:
    instead = Message("placement={'encoder': 0, 'head': 1}, your own map")
    return DevwidgetError(Message("a plan cannot use the device map {places}", places=places), why=why, instead=instead)


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
        raise DevwidgetError(what, instead=Message("placement={'encoder': 0, 'head': 1}, your own map")) from error
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
            may_be_lengths = tensor.dtype == torch.int64 and tensor.dim() == 1 and original_device(tensor).type == "cpu"
            return (cpu if lengths_stay and may_be_lengths else there).copy_tensor(tensor)

        return copy_tensor

    def place_value(value: Any, device: torch.device) -> Any:
        placed = replace_tensors(value, copy_to(device))
        if placed is value:
            return _copy_object(value, copy_to(device))
        return placed

    args = tuple(place_value(value, copied.home) for value in inputs.args)
    kwargs = {name: place_value(value, copied.home) for name, value in inputs.kwargs.items()}
    return Arguments(args, kwargs, place_value(inputs.target, copied.last))


def _copy_object(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A batch of a class of its own that a loop would move by its `to`: a copy with other tensors, for some move themselves."""
    if is_a(value, (nn.Module, torch.Tensor)) or find_class_attribute(type(value), "to") is None:
        return value
    return copy.deepcopy(value, {id(tensor): change(tensor) for tensor in _find_tensors(value)})


def _find_tensors(value: Any, depth: int = DEEPEST) -> Iterator[torch.Tensor]:
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
