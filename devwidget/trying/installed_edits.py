"""The edits of a trial put where they belong, whatever kind of line each of them changes."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType

import torch

from devwidget.capture.other_threads import running_thread
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import is_tensor
from devwidget.capture.undo import Undo, paused_gc
from devwidget.records.finding import Edit
from devwidget.trying.constructors import (
    Effect,
    apply_effects,
    find_effect,
    find_makers,
    find_registration,
    runs_in_constructor,
)
from devwidget.trying.edited_code import (
    EditedFile,
    Function,
    LiveFunctions,
    NotFound,
    NotTried,
    Place,
    edit_file,
    forget_reached,
    locate_edit,
    look_everywhere,
    mark_reached,
    pair_with_new_code,
    put_codes_in_place,
    reached_edits,
)
from devwidget.trying.top_level import Assignment, Line, assign_again, find_assignment
from devwidget.trying.trial_subjects import Subjects


@dataclass(frozen=True, slots=True)
class Removal:
    """An attribute of a class.

    Attributes:
        kind: the class.
        name: of the attribute.
        source: what the body of the class gives it.
        value: that it has.
    """

    kind: type
    name: str
    source: ast.expr
    value: torch.Tensor

    def apply(self, undo: Undo) -> None:
        """Take it out of its class."""
        undo.add_step(type.__setattr__, self.kind, self.name, self.value)
        type.__delattr__(self.kind, self.name)


def find_removal(
    edited: EditedFile, edit: Edit, statements: Sequence[ast.stmt], live: Sequence[FunctionType], subjects: Subjects
) -> Removal:
    """What an edit of `name = tensor` in the body of a class takes away.

    Raises:
        NotTried: if it is no such edit, no module of the step is of that class, or another thread runs, which sees it too.
    """
    if running_thread():
        raise NotTried("another thread would miss it")
    place = locate_edit(edited.before, edit.first, edit.last)
    old = place.block[min(place.number, len(place.block) - 1)]
    target = old.targets[0] if isinstance(old, ast.Assign) and len(old.targets) == 1 else None
    whole = (old.lineno, old.end_lineno) == (edit.first, edit.last)
    if not whole or not isinstance(old, ast.Assign) or not isinstance(target, ast.Name):
        raise NotTried("no assignment in the body of a class")
    if not all(isinstance(each, ast.Pass) or (isinstance(each, ast.AnnAssign) and each.value is None) for each in statements):
        raise NotTried("it does more than take the attribute away")
    kinds = _find_classes(place, live, subjects)
    value = vars(kinds[0]).get(target.id) if len(kinds) == 1 else None
    if not is_tensor(value):
        raise NotFound(f"`{target.id}` is no tensor of one class")
    return Removal(kinds[0], target.id, old.value, value)


def _find_classes(place: Place, live: Sequence[FunctionType], subjects: Subjects) -> list[type]:
    """The classes of the step's modules that some source has become."""
    inits = [each for each in getattr(place.owner, "body", []) if isinstance(each, Function) and each.name == "__init__"]
    makers = [maker for init in inits for maker in find_makers(init, live)]
    every = dict.fromkeys(kind for module in subjects.modules() for kind in type(module).__mro__)
    return [kind for kind in every if any(vars(kind).get("__init__") is maker for maker in makers)]


@dataclass(frozen=True, slots=True)
class Placed:
    """A trial under way.

    Attributes:
        numbers: of the edits.
        effects: by number, of those in constructors.
        assignments: by number, of those outside of functions.
        removals: by number, of those in the body of a class.
    """

    subjects: Subjects
    numbers: frozenset[int]
    effects: Mapping[int, Effect]
    assignments: Mapping[int, Assignment]
    removals: Mapping[int, Removal]

    def make_inputs(self) -> Arguments:
        """The arguments of the step, once what has run already has been made up for; all of that is to be put back.

        Raises:
            NotTried: if that cannot be done.
        """
        apply_effects(list(self.effects.values()), self.subjects)
        inputs = self.subjects.inputs
        for assignment in self.assignments.values():
            inputs = assign_again(assignment, self.subjects, inputs)
        for number in (*self.effects, *self.assignments, *self.removals):
            mark_reached(number)
        return inputs

    def all_ran(self) -> bool:
        """Whether every edit has run so far."""
        return reached_edits() >= self.numbers

    @property
    def is_exact(self) -> bool:
        """Each edit stands where it will stand; if not, a step that fails tells nothing."""
        return not self.effects and not self.assignments and not self.removals


@contextlib.contextmanager
def place_edits(
    edits: Collection[Edit], subjects: Subjects, ran: Collection[Line] = (), known: LiveFunctions | None = None
) -> Iterator[Placed]:
    """Run the block with some edits.

    Args:
        edits: of any files.
        subjects: what the step works on.
        ran: lines that the step is known to run.
        known: the functions that there are, if they have been looked for.

    Raises:
        NotTried: if they cannot be put in place.
    """
    placed, pairs = _prepare_edits(edits, subjects, ran, known or look_everywhere({edit.file for edit in edits}))
    forget_reached()
    with Undo() as undo:
        for each in placed.assignments.values():
            undo.add_step(each.names.__setitem__, each.name, each.names[each.name])
        for removal in placed.removals.values():
            removal.apply(undo)
        put_codes_in_place(pairs, undo)
        yield placed


@paused_gc()  # syntax trees go by themselves
def _prepare_edits(
    edits: Collection[Edit], subjects: Subjects, ran: Collection[Line], known: LiveFunctions
) -> tuple[Placed, list[tuple[FunctionType, CodeType]]]:
    functions = known.find_in({edit.file for edit in edits})
    numbers = {edit: number for number, edit in enumerate(edits)}
    pairs, effects, assignments, removals = [], dict[int, Effect](), dict[int, Assignment](), dict[int, Removal]()
    for file, live in functions.items():
        mine = [edit for edit in numbers if edit.file == file]
        whole = edit_file(file, mine, [numbers[edit] for edit in mine], live[0].__code__.co_flags if live else 0)
        pairs += pair_with_new_code(whole, live)
        lines = list(zip(mine, whole.places, whole.statements, strict=True))
        for edit, place, statements in lines:
            if place.function is None and place.owner is not None:
                removals[numbers[edit]] = find_removal(whole, edit, statements, live, subjects)
            elif place.function is None:
                assignments[numbers[edit]] = find_assignment(whole, edit, statements, live, ran)
        for edit, place, statements in lines:
            effect = _find_effect(whole, edit, place, statements, live, removals.values())
            if effect is not None:
                effects[numbers[edit]] = effect
    return Placed(subjects, frozenset(numbers.values()), effects, assignments, removals), pairs


def _find_effect(
    whole: EditedFile,
    edit: Edit,
    place: Place,
    statements: Sequence[ast.stmt],
    live: Sequence[FunctionType],
    removals: Collection[Removal],
) -> Effect | None:
    """What an edit does to the modules that its function has made; None where the step itself may run the function."""
    if place.function is None:
        return None
    if place.function.name == "__init__":
        held = {each.name: (each.source, each.value) for each in removals}
        if held and edit.last < edit.first:
            return find_registration(whole, edit, statements, live, held)
        return find_effect(whole, edit, statements, live)
    try:
        return find_effect(whole, edit, statements, live) if runs_in_constructor(place) else None
    except NotTried:
        return None
