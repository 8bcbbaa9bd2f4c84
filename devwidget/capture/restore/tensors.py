"""What tensors were: storage, shape, dtype, gradient, hooks. Kept by column, since a model may hold a million of them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import find_class_attribute
from devwidget.capture.restore.undoing import NotRestored, Undoing
from devwidget.records.schema.message import Message

Read = Callable[[Any], Any]
_BASE: Any = torch_internals.TensorBase
_own = {name: member.__get__ for name, member in vars(_BASE).items() if hasattr(member, "__get__")}
"""Properties without `__torch_function__`, without what a subclass or a simulation puts in their place."""
storage_id: Read = torch_internals.storage_id
_set_class = vars(object)["__class__"].__set__
_namespace: Read = vars(torch.Tensor)["__dict__"].__get__
_NO_DISPATCH = vars(torch.Tensor)["__torch_dispatch__"]
_SIGNATURE: tuple[Read, ...] = (storage_id, _own["shape"], _BASE.stride, _BASE.storage_offset, _own["dtype"])
_SLOTS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def read_column(read: Read, tensors: Sequence[Any]) -> list[Any]:
    """One property of all of them; in the place of one that does not have it stands None."""
    try:
        return list(map(read, tensors))
    except Exception:
        return [_or_none(read, tensor) for tensor in tensors]


def _or_none(read: Read, tensor: Any) -> Any:
    try:
        return read(tensor)
    except Exception:  # sparse tensors have no storage, nested ones no shape, inference tensors no version
        return None


def is_wrapper(kind: type) -> bool:
    """Whether tensors of a class hand every operator on to tensors in their fields."""
    return find_class_attribute(kind, "__torch_dispatch__") is not _NO_DISPATCH


class Tensors:
    """Tensors of one depth of the search, and all that may be changed about them except their values.

    Attributes:
        tensors: they themselves.
        aliases: others over the same storages, which keep shape, strides and dtype; None for what has no alias.
        versions: how often each had been written; None for those that do not count.
        histories: the node of autograd behind each; None for leaves.
    """

    def __init__(self, tensors: list[Any]) -> None:
        self.tensors = tensors
        self._kinds = list(map(type, tensors))
        wrappers = {id(kind) for kind in {id(kind): kind for kind in self._kinds}.values() if is_wrapper(kind)}
        self._shown = tensors if not wrappers else [None if id(type(each)) in wrappers else each for each in tensors]
        self.aliases = read_column(_BASE.detach, self._shown)
        self.versions = read_column(_own["_version"], tensors)
        self._required = read_column(_own["requires_grad"], tensors)
        self.histories = read_column(_own["grad_fn"], tensors)
        self._gradients = _read_gradients(tensors, self.histories)
        self._slots = [read_column(_own[name], tensors) for name in _SLOTS]
        self._namespaces = read_column(_namespace, tensors)
        self._bare = list(map(operator.not_, self._namespaces))
        layouts, nested = read_column(_own["layout"], self.aliases), read_column(_own["is_nested"], self.aliases)
        self._odd = list(_find_differing(operator.is_not, layouts, itertools.repeat(torch.strided)))
        self._odd += itertools.compress(itertools.count(), nested)

    def list_parts(self) -> Iterable[Any]:
        """Gradients, hooks, and what the user has stored on the tensors."""
        slots = itertools.chain.from_iterable(map(_list_present, self._slots))
        return [*_list_present(self._gradients), *slots, *filter(None, self._namespaces)]

    def label_parts(self) -> Iterator[tuple[Any, str, Any]]:
        """Each part after the tensor that has it, and how it is called from there."""
        words = ("", ".grad", "", "", "")
        for word, parts in zip(words, (self.aliases, self._gradients, *self._slots, self._namespaces), strict=True):
            yield from ((tensor, word, part) for tensor, part in zip(self.tensors, parts, strict=True) if part is not None)

    def list_changed(self) -> Iterator[Any]:
        """Those that are not what they were, but for their gradients; what is written into them, their storages tell."""
        return (self.tensors[place] for place in self._find_changed())

    def gradient_storages(self) -> set[int]:
        """Ids of the storages of gradients."""
        return set(read_column(storage_id, [*_list_present(self._gradients)]))

    def put_back(self, undoing: Undoing) -> None:
        """Each tensor that is no longer what it was."""
        for place in sorted({*self._find_changed(), *self._find_other_gradients()}):
            undoing.attempt_step(self.tensors[place], lambda place=place: self._put_back(place))  # type: ignore[misc]

    def put_versions_back(self, undoing: Undoing) -> None:
        """What has its values again counts as unwritten: graphs that had saved it before the step can still go back."""
        if torch_internals.set_versions is None:
            return
        lost = {id(owner) for owner, _ in undoing.lost}
        now = read_column(_own["_version"], self.tensors)
        for place in _find_differing(operator.ne, self.versions, now):
            if None not in (self.versions[place], now[place]) and id(self.tensors[place]) not in lost:
                _set_version(self.tensors[place], self.versions[place])

    def _find_changed(self) -> Iterator[int]:
        """Places of the tensors that are not what they were, from one comparison of columns each, without gradients."""
        tensors, histories = self.tensors, read_column(_own["grad_fn"], self.tensors)
        before_and_now: list[tuple[list[Any], list[Any]]] = [
            (self._kinds, list(map(type, tensors))),
            (self._required, read_column(_own["requires_grad"], tensors)),
            (self.histories, histories),
            *zip(self._slots, [read_column(_own[name], tensors) for name in _SLOTS], strict=True),
        ]
        for before, now in before_and_now:
            yield from _find_differing(operator.is_not, before, now)
        for read in _SIGNATURE:
            yield from _find_differing(operator.ne, read_column(read, self.aliases), read_column(read, self._shown))
        yield from itertools.compress(itertools.count(), map(operator.and_, self._bare, map(bool, self._namespaces)))
        yield from (place for place in self._odd if self.aliases[place] is not None)

    def _find_other_gradients(self) -> Iterator[int]:
        now = _read_gradients(self.tensors, read_column(_own["grad_fn"], self.tensors))
        return _find_differing(operator.is_not, self._gradients, now)

    def _put_back(self, place: int) -> None:
        tensor, alias = self.tensors[place], self.aliases[place]
        if type(tensor) is not self._kinds[place]:
            _set_class(tensor, self._kinds[place])
        if alias is not None:
            vars(_BASE)["data"].__set__(tensor, alias)
        self._put_history_back(place)
        if _read_gradient(tensor) is not self._gradients[place]:
            vars(_BASE)["grad"].__set__(tensor, self._gradients[place])
        if self._bare[place] and self._namespaces[place]:
            self._namespaces[place].clear()
        for name, values in zip(_SLOTS, self._slots, strict=True):
            if _own[name](tensor) is not values[place]:
                vars(_BASE)[name].__set__(tensor, values[place])

    def _put_history_back(self, place: int) -> None:
        """A leaf that a write has made the result of an operation is a leaf again.

        Raises:
            NotRestored: if it was a result, and is another one now.
        """
        tensor, before = self.tensors[place], self.histories[place]
        now = _own["grad_fn"](tensor)
        if now is not before and before is not None:
            raise NotRestored(Message("it belongs to another graph now"))
        if now is not None and before is None:
            _BASE.detach_(tensor)
        if before is None and _own["requires_grad"](tensor) is not self._required[place]:
            vars(_BASE)["requires_grad"].__set__(tensor, self._required[place])


def _read_gradient(tensor: Any) -> Any:
    """Of a result that keeps none, torch would warn."""
    return _own["grad"](tensor) if _own["is_leaf"](tensor) or _own["retains_grad"](tensor) else None


def _read_gradients(tensors: Sequence[Any], histories: Sequence[Any]) -> list[Any]:
    """Of leaves alone it is one property; others need a look each."""
    return read_column(_read_gradient if any(histories) else _own["grad"], tensors)


def _list_present(parts: list[Any]) -> Iterable[Any]:
    return itertools.compress(parts, map(operator.is_not, parts, itertools.repeat(None)))


def _find_differing(differ: Callable[[Any, Any], Any], before: Iterable[Any], now: Iterable[Any]) -> Iterator[int]:
    return itertools.compress(itertools.count(), map(differ, before, now))


def _set_version(tensor: torch.Tensor, version: Any) -> None:
    torch_internals.set_versions((tensor,), (version,))
