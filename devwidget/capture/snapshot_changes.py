"""Has anything changed that a snapshot shows? Asked after each cell, at a tenth of the price of a snapshot.

A fingerprint holds no module and no tensor. It may see a change where snapshots see none, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, compress
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.modules import ModuleTree
from devwidget.capture.snapshot.attribute_search import STANDARD, AttributeSearch, Found
from devwidget.capture.snapshot.optimizer_state import optimizer_tensors
from devwidget.capture.snapshot.special_modules import SPECIAL
from devwidget.capture.snapshot.tensor_reader import PLAIN
from devwidget.capture.snapshot.wrapper_facts import Wrapping, find_wrapping
from devwidget.capture.undo import paused_gc
from devwidget.records.errors import message

_PLAIN = frozenset(map(id, PLAIN))
_READ = tuple(map(attrgetter, ("device", "dtype", "shape", "requires_grad")))
_READ_GRAD = tuple(map(attrgetter, ("device", "nbytes")))
_IS_LEAF, _GRAD, _ADDRESS = map(attrgetter, ("is_leaf", "grad", "_cdata"))


class TensorWatch:
    """What a snapshot tells of some tensors, in lists that C loops fill and compare.

    Raises:
        TypeError: if a tensor or a gradient is of a subclass, or a gradient is not dense.
        RuntimeError: if a tensor is not dense.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._facts = list(_tensor_facts(tensors))

    def still_fits(self, tensors: list[torch.Tensor]) -> bool:
        """True if they are the same in all of it."""
        return all(now == before for now, before in zip(_tensor_facts(tensors), self._facts, strict=True))


def _tensor_facts(tensors: list[torch.Tensor]) -> Iterator[list[Any]]:
    are_leaves = list(map(_IS_LEAF, tensors))
    grads = list(map(_GRAD, compress(tensors, are_leaves)))  # to read the gradient of others raises a warning
    given = [grad for grad in grads if grad is not None]
    if not _PLAIN.issuperset(map(id, map(type, chain(tensors, given)))):
        raise TypeError("tensors of other classes")
    yield are_leaves
    yield from (list(map(read, tensors)) for read in _READ)
    storages = list(map(torch.Tensor.untyped_storage, tensors))
    yield list(map(_ADDRESS, storages))
    yield list(map(torch.UntypedStorage.nbytes, storages))
    yield list(map(torch.Tensor.storage_offset, tensors))
    if any(grad.layout != torch.strided for grad in given):
        raise TypeError("sparse gradients")
    yield [grad is None for grad in grads]
    yield from (list(map(read, given)) for read in _READ_GRAD)


_MOST = 256
_OWN, _CHILDREN, _TRAINING = attrgetter("__dict__"), itemgetter("_modules"), itemgetter("training")
_REGISTERED = itemgetter("_parameters", "_buffers")


class ModuleGroup(NamedTuple):
    """Some modules of a tree, the `__dict__` of each, and the addresses of their children."""

    modules: list[nn.Module]
    owns: list[dict[str, Any]]
    below: list[int]


class NotWatchable(Exception):
    """There are parts that only a full reading understands."""


class ModuleWatch:
    """What each of some modules is and has registered, without holding one of them.

    Attributes:
        holders: which of the modules have attributes that may hold tensors, with the names of these.

    Raises:
        NotWatchable: for scripted, replicated, offloaded and quantized modules.
    """

    def __init__(self, group: ModuleGroup) -> None:
        modules, owns, _ = group
        self._facts, tensors = _module_facts(group)
        self._tensors = TensorWatch(tensors)
        classes = [type(module) for module in modules]
        kinds = {key: find_wrapping(kind) for key, kind in {id(kind): kind for kind in classes}.items()}
        layouts = _find_layouts(owns)
        _refuse_special(kinds.values(), layouts)
        of_modules = [kinds[id(kind)] for kind in classes]
        self._notes = [(at, kind.note) for at, kind in enumerate(of_modules) if kind.word]
        self._groups = [(itemgetter(name), places) for names, places in layouts for name in names]
        self._rest = self._read_rest(owns)
        search = AttributeSearch(bool)
        found = ((at, search.find_candidates(owns[at], names)) for names, places in layouts for at in places)
        self.holders = [(at, names) for at, names in found if names and not of_modules[at].hides]

    def still_fits(self, group: ModuleGroup) -> bool:
        """True if modules at the same places are the same in everything that a snapshot tells of them and their tensors."""
        facts, tensors = _module_facts(group)
        return facts == self._facts and self._read_rest(group.owns) == self._rest and self._tensors.still_fits(tensors)

    def _read_rest(self, owns: list[dict[str, Any]]) -> tuple[list[Any], list[str]]:
        """Types of the attributes that not every module has, and the notes of wrappers."""
        types = [list(map(type, map(value, map(owns.__getitem__, places)))) for value, places in self._groups]
        return types, [note(owns[at]) for at, note in self._notes]


def module_groups(root: nn.Module) -> Iterator[ModuleGroup]:
    """All modules of a tree, each once, level by level."""
    level, seen = {id(root): root}, {id(root)}
    while level:
        modules, level = list(level.values()), {}
        for start in range(0, len(modules), _MOST):
            part = modules[start : start + _MOST]
            owns = list(map(_OWN, part))
            children = list(chain.from_iterable(map(dict.values, map(_CHILDREN, owns))))
            ids = list(map(id, children))
            yield ModuleGroup(part, owns, ids)
            found = dict(zip(ids, children, strict=True))
            for known in seen.intersection(found) | {id(None)}:
                found.pop(known, None)
            seen.update(found)
            level |= found


def _module_facts(group: ModuleGroup) -> tuple[tuple[list[Any], ...], list[torch.Tensor]]:
    """All but the tensors, and these. An address may come again, but then everything else must be the same too."""
    modules, owns, below = group
    children, registered = list(map(_CHILDREN, owns)), list(chain.from_iterable(map(_REGISTERED, owns)))
    own = list(map(type, modules)), list(map(_TRAINING, owns)), list(map(len, owns))
    full = list(filter(None, registered))
    values = list(chain.from_iterable(map(dict.values, full)))
    tensors = [value for value in values if value is not None]
    held = list(map(len, registered)), [value is None for value in values] if len(tensors) < len(values) else []
    names = list(map(len, children)), list(chain.from_iterable(children)), list(chain.from_iterable(full))
    return (*own, below, *held, *names), tensors


def _find_layouts(owns: list[dict[str, Any]]) -> list[tuple[list[str], list[int]]]:
    """The attributes that not every module has, with the places of the modules that have just these."""
    places: dict[tuple[str, ...], list[int]] = {}
    for at, own in enumerate(owns):
        places.setdefault(tuple(own), []).append(at)
    return [([name for name in layout if name not in STANDARD], where) for layout, where in places.items()]


def _refuse_special(kinds: Iterable[Wrapping], layouts: list[tuple[list[str], list[int]]]) -> None:
    if any(kind.word in ("scripted", "quantized") for kind in kinds):
        raise NotWatchable("scripted or quantized modules")
    if not all(SPECIAL.isdisjoint(names) for names, _ in layouts):
        raise NotWatchable("replicated or offloaded modules, or such that are compiled in place")


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
