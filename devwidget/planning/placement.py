"""The model again, without values, placed on virtual GPUs as the user asks."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from devwidget import simulator
from devwidget.capture.modules import named_tensors, own_tensors, walk
from devwidget.capture.restore import keeping
from devwidget.planning.changes import Changed
from devwidget.planning.child.tensors import place_of
from devwidget.planning.gpus import gpu, is_on_gpu
from devwidget.planning.watcher import Watcher
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.schema.message import Message
from devwidget.simulator.cluster import UNLIMITED, VirtualMachine
from devwidget.simulator.devices.ledger import Account
from devwidget.simulator.devices.ledger_listeners import watch_allocations
from devwidget.simulator.without_values.meta_copies import meta_copy_of_model

Placement = str | Mapping[str, Any]


@contextlib.contextmanager
def placed_copy(
    model: nn.Module, placement: Placement, cluster: VirtualMachine, watcher: Watcher, changed: Changed
) -> Iterator[tuple[PlacedCopy, tuple[Account, ...]]]:
    """A copy on virtual GPUs and their accounts; it ends before they do, and the random state is kept."""
    with keeping(nn.Module()), simulator.Simulation(cluster):
        accounts = watch_allocations(watcher.saw, watcher.refused, watcher.guessed)
        copied = PlacedCopy(model, placement, cluster.memory_bytes, watcher, changed)
        try:
            yield copied, accounts
        finally:
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
        self,
        model: nn.Module,
        placement: Placement,
        capacities: Sequence[int],
        watcher: Watcher,
        changed: Changed,
    ) -> None:
        self.device_map: tuple[tuple[str, str], ...] = ()
        as_is, mapped = placement == "as is", placement == "auto" or isinstance(placement, Mapping)
        there = any(place_of(parameter).type == gpu(0).type for _, parameter in named_tensors(model, "_parameters"))
        bare = gpu(0) if not mapped else torch.device("cpu")
        owners = {id(tensor): path for path, module in walk(model) for tensor in own_tensors(module).values()}

        def place(tensor: torch.Tensor) -> torch.device:
            watcher.placing = owners.get(id(tensor))
            return place_of(tensor) if as_is and there else bare

        def place_plain(tensor: torch.Tensor) -> torch.device:
            return bare if place_of(tensor).type == "meta" else place_of(tensor)

        self.inner = self.placed = meta_copy_of_model(model, place, place_plain, changed.dtype)
        changed.prepare(self.inner)
        watcher.placing = None
        devices = [parameter.device for _, parameter in named_tensors(self.inner, "_parameters") if is_on_gpu(parameter)]
        self.home, self.last = (devices[0], devices[-1]) if devices and as_is else (gpu(0), gpu(0))
        if placement == "data parallel":
            self.placed = nn.DataParallel(self.inner, device_ids=list(range(len(capacities))))
        if mapped:
            self._dispatch(placement, capacities)

    def _dispatch(self, placement: Placement, capacities: Sequence[int]) -> None:
        import accelerate

        places = proposed(self.inner, capacities) if isinstance(placement, str) else dict(placement)
        self.device_map = tuple((path, _name(place)) for path, place in places.items())
        used = [torch.device(name) for _, name in self.device_map if name.startswith(gpu(0).type)]
        if not used or "disk" in dict(self.device_map).values():
            raise DevwidgetError(
                Message("a plan cannot use the device map {places}", places=places), why=Message("it names no GPU, or the disk")
            )
        self.home = self.last = used[0]
        with warnings.catch_warnings():  # a map may name tensors, as those that accelerate proposes do
            warnings.filterwarnings("ignore", "The following device_map keys do not match any submodules")
            self.placed = self.inner = accelerate.dispatch_model(self.inner, places, main_device=self.home, force_hooks=True)


def proposed(model: nn.Module, capacities: Sequence[int]) -> dict[str, Any]:
    """The device map that accelerate proposes for GPUs of these sizes.

    Raises:
        DevwidgetError: if it fails.
    """
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


def _name(place: Any) -> str:
    return str(gpu(place) if isinstance(place, int) else place)
