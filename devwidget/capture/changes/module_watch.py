"""Are these modules still what they were? Some hundred at once, so that each pass finds them in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture.changes.tensor_watch import TensorWatch
from devwidget.capture.snapshot.attribute_search import STANDARD, AttributeSearch
from devwidget.capture.snapshot.special_modules import SPECIAL
from devwidget.capture.snapshot.wrapper_facts import Wrapping, find_wrapping

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
