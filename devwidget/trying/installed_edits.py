"""Put the edits of a trial in place: new function code, and the effects of edited constructors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from devwidget.capture.object_fields import copy_items, is_a, names_of
from devwidget.capture.source_code.reachable_objects import TooManyObjects, reachable_objects
from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.capture.undo import Undo, paused_gc
from devwidget.records.finding import Edit, Effect
from devwidget.trying.code_swap import Pair, put_codes_in_place
from devwidget.trying.edited_code import EditPlace, NotTried, edit_file, forget_reached, mark_reached, reached_edits
from devwidget.trying.effects import apply_effects


@dataclass(frozen=True, slots=True)
class Placed:
    """A trial under way.

    Attributes:
        step: the step that runs.
        numbers: numbers of the edits.
        effects: effect of each edit that has one, by number.
    """

    step: Step
    numbers: frozenset[int]
    effects: Mapping[int, Effect]

    def make_inputs(self) -> Arguments:
        """Apply the effects of code that already ran, and return the arguments of the step. Undone after the trial.

        Raises:
            NotTried: if an effect cannot be applied.
        """
        apply_effects(list(dict.fromkeys(self.effects.values())), self.step)
        for number in self.effects:
            mark_reached(number)
        return self.step.inputs

    def list_unreached(self) -> list[int]:
        """Return the numbers of the edits that have not run."""
        return sorted(self.numbers - reached_edits())


@contextlib.contextmanager
def place_edits(
    edits: Collection[Edit],
    step: Step,
    known: LiveFunctions | None = None,
    effects: Mapping[Edit, Effect] | None = None,
    *,
    is_built: bool = False,
) -> Iterator[Placed]:
    """Run the block with some edits in place.

    Args:
        edits: edits of any number of files.
        step: the step that runs in the block.
        known: the functions of the files, if they were already searched.
        effects: effects of edits whose lines have already run.
        is_built: the block builds the step again, so that edits of constructors run in it.

    Raises:
        NotTried: if an edit cannot be put in place.
    """
    effects = effects or {}
    pairs = _pair_functions(edits, known or find_functions({edit.file for edit in edits}), effects, is_built)
    forget_reached()
    with Undo() as undo:
        put_codes_in_place(pairs, undo)
        numbered = {number: effects[edit] for number, edit in enumerate(edits) if edit in effects}
        yield Placed(step, frozenset(range(len(edits))), numbered)


@paused_gc()  # syntax trees go by themselves
def _pair_functions(
    edits: Collection[Edit], known: LiveFunctions, effects: Mapping[Edit, Effect], is_built: bool
) -> list[Pair]:
    pairs: list[Pair] = []
    by_file: dict[str, dict[Edit, int]] = {}
    for number, edit in enumerate(edits):
        by_file.setdefault(edit.file, {})[edit] = number
    for file, numbers in by_file.items():
        swap, places = edit_file(file, list(numbers), list(numbers.values()))
        for edit, place in zip(numbers, places, strict=True):
            if has_run(place, is_built) and edit not in effects:
                raise NotTried("its lines have run already")
        try:
            pairs += swap.find_pairs(known.by_file[file])
        except SyntaxError as error:
            raise NotTried(str(error)) from error
    return pairs


def has_run(place: EditPlace, is_built: bool = False) -> bool:
    """Return whether an edit is in code that runs before the step: a module, a class body, or a constructor that is not run
    again.
    """
    if place.function is None:
        return True
    return place.function.name == "__init__" and not is_built


# The functions that are alive.


_DEEPEST = 50


class LiveFunctions(NamedTuple):
    """The functions of some files.

    Attributes:
        by_file: the functions that were found.
        is_whole: False if the search stopped because the program has too many objects.
    """

    by_file: dict[str, list[FunctionType]]
    is_whole: bool


def find_functions(files: Collection[str], roots: Iterable[Any] = ()) -> LiveFunctions:
    """Find the functions of some files that are reachable from `roots`, the call stack and the globals of the files.

    Args:
        files: names of the files.
        roots: objects to search first. If the search stops early, it has covered what is nearest to them.
    """
    found: dict[str, list[FunctionType]] = {file: [] for file in files}
    first = list(roots)
    try:
        # From the frames below us too: a function may be held by a variable of a running call alone.
        for each in reachable_objects(sys._getframe(1), roots=[*first, *_list_variables(files, first)], deepest=_DEEPEST):
            if type(each) is FunctionType and each.__code__.co_filename in found:
                found[each.__code__.co_filename].append(each)
    except TooManyObjects:
        return LiveFunctions(found, is_whole=False)
    return LiveFunctions(found, is_whole=True)


def _list_variables(files: Collection[str], roots: Iterable[Any]) -> Iterator[Any]:
    """Yield values of the global variables of some files. Functions among the roots may belong to modules outside of
    `sys.modules`.
    """
    namespaces: dict[int, dict[str, Any]] = {}
    for module in list(sys.modules.values()):
        if type(module) is ModuleType and _is_of(module, files):
            namespaces[id(vars(module))] = vars(module)
    for function in _list_functions(roots):
        if function.__code__.co_filename in files:
            namespaces[id(function.__globals__)] = function.__globals__
    for namespace in namespaces.values():
        for _, value in copy_items(namespace):
            yield value


def _list_functions(roots: Iterable[Any]) -> Iterator[FunctionType]:
    """Yield the functions among the roots, and in the bodies of classes among them."""
    for root in roots:
        members = [root]
        if is_a(root, type):
            members += names_of(root).values()
        for member in members:
            if type(member) is FunctionType:
                yield member


def _is_of(module: ModuleType, files: Collection[str]) -> bool:
    file = vars(module).get("__file__")
    return module is sys.modules.get("__main__") or (type(file) is str and file in files)
