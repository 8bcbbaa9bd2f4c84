"""Has anything changed that a snapshot shows? Asked after each cell, at a tenth of the price of a snapshot.

A fingerprint holds no module and no tensor. It may see a change where snapshots see none, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.changes.module_watch import ModuleGroup, ModuleWatch, NotWatchable, module_groups
from devwidget.capture.changes.tensor_watch import TensorWatch
from devwidget.capture.paused_gc import paused_gc
from devwidget.capture.snapshot.attribute_search import AttributeSearch, Found
from devwidget.capture.snapshot.module_tree import ModuleTree
from devwidget.capture.snapshot.optimizer_state import optimizer_tensors
from devwidget.records.errors import message

_UNREADABLE = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)
"""What reading raises where modules or tensors are not the ordinary ones, or no longer those that were there."""

Holder = tuple[int, list[str]]


class Fingerprint:
    """What a model and its optimizer were like.

    Raises:
        NotWatchable: for scripted, replicated, offloaded and quantized modules, tensors in class attributes, and tensors
            that are not dense.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        with paused_gc(), torch_internals.DisableTorchFunction():
            try:
                parts = list(module_groups(model))
                self._parts = [ModuleWatch(part) for part in parts]
                self._holders = _in_order(model, parts, self._parts)
                self._others, tensors = self._find_others(_list_modules(parts), optimizer)
                self._tensors = TensorWatch(tensors)
            except _UNREADABLE as error:
                raise NotWatchable(message(error)) from error

    def still_fits(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> bool:
        """True if a snapshot would say the same as when the fingerprint was taken, apart from the memory of devices."""
        with paused_gc(), torch_internals.DisableTorchFunction():
            try:
                return self._compare_all(model, optimizer)
            except (*_UNREADABLE, NotWatchable):
                return False

    def _compare_all(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> bool:
        modules: list[nn.Module] = []
        for watch, part in zip(self._parts, module_groups(model), strict=True):
            if not watch.still_fits(part):
                return False
            modules += part.modules
        others, tensors = self._find_others(modules, optimizer)
        return others == self._others and self._tensors.still_fits(tensors)

    def _find_others(
        self, modules: list[nn.Module], optimizer: torch.optim.Optimizer | None
    ) -> tuple[list[tuple[str, str]], list[torch.Tensor]]:
        """Tensors that no module has registered: their names and notes, and themselves."""
        found = list(_unregistered_tensors(modules, self._holders))
        if optimizer is not None:
            places = {id(each): str(at) for at, each in enumerate(_list_parameters(modules))}  # they stand for their paths
            found += optimizer_tensors(optimizer, places)
        return [(name, note) for name, _, note in found], [tensor for _, tensor, _ in found]


def _in_order(model: nn.Module, parts: list[ModuleGroup], watches: list[ModuleWatch]) -> list[Holder]:
    """Holders as a snapshot meets them: of tensors that can be reached in two ways it tells the first."""
    order = ModuleTree(model).index
    modules, holders, start = _list_modules(parts), [], 0
    for part, watch in zip(parts, watches, strict=True):
        holders += [(start + at, names) for at, names in watch.holders]
        start += len(part.modules)
    return sorted(holders, key=lambda holder: order[id(modules[holder[0]])])


def _list_modules(parts: list[ModuleGroup]) -> list[nn.Module]:
    return [module for part in parts for module in part.modules]


def _unregistered_tensors(modules: list[nn.Module], holders: list[Holder]) -> Iterator[Found]:
    known = {*map(id, modules), *map(id, _list_parameters(modules))} if holders else set()
    search = AttributeSearch(lambda value: id(value) in known)
    if any(search.of_class(kind) for kind in {id(kind): kind for kind in map(type, modules)}.values()):
        raise NotWatchable("tensors in class attributes")
    for at, names in holders:
        for name in names:
            for inside, tensor, note in search.search_attribute(name, modules[at].__dict__[name]):
                yield f"{at} {inside}", tensor, note
            if search.is_full:
                raise NotWatchable("too many objects")


def _list_parameters(modules: list[nn.Module]) -> Iterator[nn.Parameter]:
    return (each for module in modules for each in module.__dict__["_parameters"].values() if each is not None)
