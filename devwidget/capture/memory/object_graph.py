"""The objects that some variables reach, and every reference between them, so that references from elsewhere are noticed."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter, deque
from collections.abc import Collection, Container, Iterable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
    TracebackType,
)
from typing import Any

import torch

from devwidget.capture.memory.roles import saved_by
from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import SCALARS, dict_of, find_class_attribute, is_a, module_name, names_of
from devwidget.capture.source_code.stack import is_users_class
from devwidget.capture.tensors import gradient_of, is_tensor, node_of, sparse_parts, viewed_base

_LEAVES = frozenset(
    map(
        id,
        (
            *SCALARS,
            BuiltinFunctionType,
            CodeType,
            GetSetDescriptorType,
            MemberDescriptorType,
            ModuleType,
            weakref.ReferenceType,
            torch.device,
            torch.dtype,
        ),
    )
)
"""Ids of classes whose instances lead to no tensor; modules have their variables as roots."""
_TOOLS = ("devwidget.", "IPython.", "ipykernel.", "traitlets.")
_UNCOUNTED = (BaseException, TracebackType, FrameType)
"""Python and IPython refer to these from places that no walk sees."""
_OUR_REFERENCES = 3
"""References to an object while they are counted: the list's, our variable, and the argument of `getrefcount`."""


class ObjectGraph:
    """The objects that some roots reach, tensors, graphs and modules first, then the nearest. Runs no user code.

    Args:
        roots: start objects.
        most: maximum number of objects whose content is searched.
        closed: objects that are not entered, by id, such as the variables of modules.

    Attributes:
        objects: the objects, numbered by their place.
        links: numbers of what each object refers to, once per reference.
        starts: numbers of the roots.
        is_cut: whether there are more than `most`.
    """

    def __init__(self, roots: Iterable[Any], most: int, closed: Container[int] = ()) -> None:
        self._closed = closed
        self.objects: list[Any] = []
        self.links: list[list[int]] = []
        self._numbers: dict[int, int] = {}
        self._nodes: set[int] = set()
        self._first: deque[int] = deque()
        self._later: deque[int] = deque()
        self.starts = [self._add(value) for value in roots]
        for _ in range(most):
            queue = self._first or self._later
            if not queue:
                break
            number = queue.popleft()
            self.links[number] = [self._add(part) for part in self._list_parts(self.objects[number])]
        self.is_cut = bool(self._first or self._later)

    def is_node(self, number: int) -> bool:
        """Return whether an object is a node of autograd's graph."""
        return id(self.objects[number]) in self._nodes

    def keep_leading_to(self, targets: Iterable[int]) -> set[int]:
        """Drop all links that lead to none of these objects; return what leads to them."""
        sources: list[list[int]] = [[] for _ in self.objects]
        for number, links in enumerate(self.links):
            for link in links:
                sources[link].append(number)
        leading = set(targets)
        todo = list(leading)
        while todo:
            for source in sources[todo.pop()]:
                if source not in leading:
                    leading.add(source)
                    todo.append(source)
        for number, links in enumerate(self.links):
            self.links[number] = [link for link in links if link in leading]
        return leading

    def count_references(self) -> Counter[int]:
        """Return how many references to each object the graph has."""
        return Counter(link for links in self.links for link in links)

    def list_referenced_elsewhere(self, numbers: Iterable[int], known: Counter[int]) -> Iterator[int]:
        """Yield the objects among these that more refers to than is known."""
        for number in numbers:
            value = self.objects[number]
            if id(value) in self._nodes or is_a(value, _UNCOUNTED):
                continue
            expected = known[number] + _OUR_REFERENCES + is_tensor(value)  # torch itself may hold one to a tensor
            if sys.getrefcount(value) > expected:
                yield number

    def reach(self, starts: Iterable[int], without: Collection[int] = ()) -> dict[int, int]:
        """Return the objects that some others reach, nearest first, each with the one before it, -1 for a start.

        Args:
            starts: numbers of the first objects.
            without: objects that are not passed.
        """
        before = {start: -1 for start in starts if start not in without}
        todo = list(before)
        for number in todo:
            for link in self.links[number]:
                if link not in before and link not in without:
                    before[link] = number
                    todo.append(link)
        return before

    def _add(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.objects)
            self.objects.append(value)
            self.links.append([])
            is_near = is_tensor(value) or id(value) in self._nodes or is_module(value)
            (self._first if is_near else self._later).append(number)
        return number

    def _list_parts(self, value: Any) -> list[Any]:
        found, nodes = [], []
        if is_tensor(value):
            found = [*dict.values(dict_of(value)), *viewed_base(value), *sparse_parts(value), gradient_of(value)]
            nodes = [node_of(value)]
        elif id(value) in self._nodes:  # it keeps what backward needs, the nodes before it, and a leaf that gets a gradient
            found = [*saved_by(value), *dict.values(dict_of(value))]
            if find_class_attribute(type(value), "variable") is not None:
                found.append(value.variable)
            nodes = [before for before, _ in value.next_functions]
        elif id(value) not in self._closed:
            found = _list_referents(value)
        self._nodes.update(id(node) for node in nodes if node is not None)
        return [part for part in (*found, *nodes) if id(type(part)) not in _LEAVES]


def _list_referents(value: Any) -> list[Any]:
    if is_a(value, type):
        return [*names_of(value).values()] if is_users_class(value) else []
    if module_name(type(value)).startswith(_TOOLS) or is_a(value, ModuleType):
        return []
    found = gc.get_referents(value)
    if type(value) is FunctionType:
        namespace = value.__globals__
    elif type(value) is FrameType:
        namespace = value.f_globals
    else:
        return found
    return [part for part in found if part is not namespace]
