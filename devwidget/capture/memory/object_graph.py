"""The objects that variables reach, and every reference between them, so that references from elsewhere are noticed."""

from __future__ import annotations

import gc
import inspect
import re
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
from typing import Any, Literal, NamedTuple

import torch

from devwidget.capture.memory.roles import saved_by
from devwidget.capture.object_fields import SCALARS, copy_items, dict_of, find_class_attribute, is_a, module_name, names_of
from devwidget.capture.source_code.stack import is_library, is_users_class, is_users_code, locals_of, stack, steps_down
from devwidget.capture.tensors import gradient_of, is_module, is_tensor, node_of, sparse_parts, viewed_base
from devwidget.records.site import cell_label, find_shell

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
        if is_users_class(value):
            return [*names_of(value).values()]
        return []
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


# Where a search begins: variables, running calls, displayed results, the frames of the last errors.


RootKind = Literal["variable", "local", "output", "traceback"]
_OF_SHELL = frozenset({"In", "Out", "exit", "quit", "get_ipython", "open", "_ih", "_oh", "_dh"})
_RESULT = re.compile(r"_+\d*")
"""IPython's names of results: `_`, `__`, `___`, `_7`."""


LEFT = "get_ipython().user_ns_hidden"
"""Where IPython keeps the last three results after `%reset out`."""


class Root(NamedTuple):
    """A variable, or what else keeps an object alive.

    Attributes:
        kind: `traceback` for a variable in a frame that failed.
        name: its name, such as `losses` or `Out[7]`; "" for an exception.
        value: its object.
        frame: frame of a local variable.
        file: file of the variable; "" for a notebook's.
        is_reference: whether it is a reference that a search of other objects does not see.
    """

    kind: RootKind
    name: str
    value: Any
    frame: FrameType | None = None
    file: str = ""
    is_reference: bool = True


class Roots:
    """All roots of the process, as far as variables lead.

    Args:
        errors: exceptions whose frames are still there.
        frame: innermost running frame.

    Attributes:
        namespaces: the dicts of variables, which are no objects of the program.
    """

    def __init__(self, errors: Iterable[BaseException], frame: FrameType | None) -> None:
        self.namespaces: dict[int, dict[str, Any]] = {}
        for module in list(sys.modules.values()):
            if is_a(module, ModuleType):
                self._add_namespace(dict_of(module))
        self.found: list[Root] = []
        running = [each for _, each in stack(frame)]
        steps = (step for error in errors for step in steps_down(error.__traceback__))
        failed = list(dict.fromkeys(step.tb_frame for step in steps if step.tb_frame not in running))
        self._add_variables([*failed, *running])
        for each in running:
            if is_users_code(each.f_code):
                self.found += self._list_locals(each, "local")
        for each in sorted(failed, key=lambda each: not is_users_code(each.f_code)):  # the user's names first
            self.found += self._list_locals(each, "traceback")
        self.found += [Root("traceback", "", error) for error in errors]

    def _add_namespace(self, namespace: dict[str, Any]) -> None:
        self.namespaces[id(namespace)] = namespace

    def _add_variables(self, frames: Iterable[FrameType]) -> None:
        programs = {id(names): (names, file) for names, file in _list_programs()}
        for each in frames:
            self._add_namespace(each.f_globals)
            file = each.f_code.co_filename
            if is_users_code(each.f_code):
                programs.setdefault(id(each.f_globals), (each.f_globals, "" if cell_label(file) else file))
        shell = find_shell()
        if shell is not None:
            self._add_namespace(shell.user_ns_hidden)
            self.found += _list_results(shell)
            programs[id(shell.user_ns)] = shell.user_ns, ""
        for namespace, file in programs.values():
            self._add_namespace(namespace)
            self.found += _list_variables(namespace, file)

    def _list_locals(self, frame: FrameType, kind: RootKind) -> Iterator[Root]:
        if id(frame.f_globals) in self.namespaces and not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # at top level
        for name, value in locals_of(frame).items():
            yield Root(kind, name, value, frame, frame.f_code.co_filename, kind == "local")


def _list_programs() -> Iterator[tuple[dict[str, Any], str]]:
    """Yield variables and file of the script and of each module that the user wrote."""
    for name, module in list(sys.modules.items()):
        names = dict_of(module)
        file = names.get("__file__")
        if type(file) is str and (name == "__main__" or not is_library(file)):
            yield names, file


def _list_variables(namespace: dict[str, Any], file: str) -> Iterator[Root]:
    for name, value in copy_items(namespace):
        is_plain = type(name) is str and not name.startswith("__") and name not in _OF_SHELL
        if is_plain and _RESULT.fullmatch(name) is None:
            yield Root("variable", name, value, None, file)


def _list_results(shell: Any) -> Iterator[Root]:
    """Yield what IPython keeps of displayed results: `Out[7]`, `_7`, `_` and its own names for the last three."""
    results = shell.user_ns.get("Out")
    if is_a(results, dict):
        for number, value in copy_items(results):
            yield Root("output", f"Out[{number}]", value)
    for name, value in _list_unders(shell.user_ns_hidden):
        is_left = shell.user_ns.get(name) is not value  # by `%reset out`, which forgets this namespace
        yield Root("output", f"{LEFT}[{name!r}]" if is_left else name, value)
    for namespace in (shell.user_ns, dict_of(shell.displayhook)):
        for name, value in _list_unders(namespace):
            yield Root("output", name, value)


def _list_unders(namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in copy_items(namespace):
        if type(name) is str and _RESULT.fullmatch(name):
            yield name, value


def last_errors(error: BaseException | None) -> list[BaseException]:
    """Return an exception, and those whose frames Python or IPython still keep, each once."""
    kept = [error, getattr(sys, "last_exc", None), getattr(sys, "last_value", None), sys.exception()]
    found: dict[int, BaseException] = {}
    while kept:
        each = kept.pop(0)
        if is_a(each, BaseException) and id(each) not in found:
            found[id(each)] = each
            kept += [each.__cause__, each.__context__]
    return list(found.values())
