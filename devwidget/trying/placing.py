"""Placing: the edits of a trial put where they belong, whatever kind of line each of them changes."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType

from devwidget.capture.step.batch import Arguments
from devwidget.capture.undo import Undo
from devwidget.records.finding import Edit
from devwidget.trying import reached
from devwidget.trying.class_attributes import Removal, removal_of
from devwidget.trying.constructors import Effect, effect_of, registration_of, runs_in_constructor
from devwidget.trying.edited_file import EditedFile, NotTried, Place, edited
from devwidget.trying.functions import LiveFunctions, put_in_place, with_new_code
from devwidget.trying.made_modules import apply_effects
from devwidget.trying.subjects import Subjects
from devwidget.trying.top_level import Assignment, Line, assigned_again, assignment_of


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

    def inputs(self) -> Arguments:
        """The arguments of the step, once what has run already has been made up for; all of that is to be put back.

        Raises:
            NotTried: if that cannot be done.
        """
        apply_effects(list(self.effects.values()), self.subjects)
        inputs = self.subjects.inputs
        for assignment in self.assignments.values():
            inputs = assigned_again(assignment, self.subjects, inputs)
        for number in (*self.effects, *self.assignments, *self.removals):
            reached.mark(number)
        return inputs

    def all_ran(self) -> bool:
        """Whether every edit has run so far."""
        return reached.seen() >= self.numbers

    @property
    def is_exact(self) -> bool:
        """Each edit stands where it will stand; if not, a step that fails tells nothing."""
        return not self.effects and not self.assignments and not self.removals


@contextlib.contextmanager
def placed(
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
    functions = (known or LiveFunctions({edit.file for edit in edits})).of({edit.file for edit in edits})
    numbers = {edit: number for number, edit in enumerate(edits)}
    pairs, effects, assignments, removals = [], dict[int, Effect](), dict[int, Assignment](), dict[int, Removal]()
    for file, live in functions.items():
        mine = [edit for edit in numbers if edit.file == file]
        whole = edited(file, mine, [numbers[edit] for edit in mine], live[0].__code__.co_flags if live else 0)
        pairs += with_new_code(whole, live)
        lines = list(zip(mine, whole.places, whole.statements, strict=True))
        for edit, place, statements in lines:
            if place.function is None and place.owner is not None:
                removals[numbers[edit]] = removal_of(whole, edit, statements, live, subjects)
            elif place.function is None:
                assignments[numbers[edit]] = assignment_of(whole, edit, statements, live, ran)
        for edit, place, statements in lines:
            effect = _effect(whole, edit, place, statements, live, removals.values())
            if effect is not None:
                effects[numbers[edit]] = effect
    reached.clear()
    with Undo() as undo:
        for each in assignments.values():
            undo.add_step(each.names.__setitem__, each.name, each.names[each.name])
        for removal in removals.values():
            removal.apply(undo)
        put_in_place(pairs, undo)
        yield Placed(subjects, frozenset(numbers.values()), effects, assignments, removals)


def _effect(
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
            return registration_of(whole, edit, statements, live, held)
        return effect_of(whole, edit, statements, live)
    try:
        return effect_of(whole, edit, statements, live) if runs_in_constructor(place) else None
    except NotTried:
        return None
