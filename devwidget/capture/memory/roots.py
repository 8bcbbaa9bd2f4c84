"""Where a search for tensors begins: variables, running calls, displayed results, the frames of the last errors."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from types import FrameType, ModuleType
from typing import Any, Literal, NamedTuple

from devwidget.capture.object_fields import copy_items, dict_of, is_a
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.stack import is_library, is_users_code, stack, steps_down
from devwidget.records.site import cell_label, find_shell

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
    for number, value in copy_items(results) if is_a(results, dict) else ():
        yield Root("output", f"Out[{number}]", value)
    for name, value in _list_unders(shell.user_ns_hidden):
        is_left = shell.user_ns.get(name) is not value  # by `%reset out`, which forgets this namespace
        yield Root("output", f"{LEFT}[{name!r}]" if is_left else name, value)
    for namespace in (shell.user_ns, dict_of(shell.displayhook)):
        for name, value in _list_unders(namespace):
            yield Root("output", name, value)


def _list_unders(namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in copy_items(namespace) if type(name) is str and _RESULT.fullmatch(name))


def last_errors(error: BaseException | None = None) -> list[BaseException]:
    """Return an exception, and those whose frames Python or IPython still keep, each once."""
    kept = [error, getattr(sys, "last_exc", None), getattr(sys, "last_value", None), sys.exception()]
    found: dict[int, BaseException] = {}
    while kept:
        each = kept.pop(0)
        if is_a(each, BaseException) and id(each) not in found:
            found[id(each)] = each
            kept += [each.__cause__, each.__context__]
    return list(found.values())
