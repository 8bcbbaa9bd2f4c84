"""Placing: the edits of a trial put where they belong, whatever kind of line each of them changes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from devwidget.capture.step.batch import Arguments
from devwidget.capture.undo import Undo
from devwidget.records.finding import Edit
from devwidget.trying import reached
from devwidget.trying.constructors import Effect, effect_of
from devwidget.trying.edited_file import edited
from devwidget.trying.functions import live_functions, put_in_place, with_new_code
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
    """

    subjects: Subjects
    numbers: frozenset[int]
    effects: Mapping[int, Effect]
    assignments: Mapping[int, Assignment]

    def inputs(self) -> Arguments:
        """The arguments of the step, once what has run already has been made up for; all of that is to be put back.

        Raises:
            NotTried: if that cannot be done.
        """
        apply_effects(list(self.effects.values()), self.subjects)
        inputs = self.subjects.inputs
        for assignment in self.assignments.values():
            inputs = assigned_again(assignment, self.subjects, inputs)
        for number in (*self.effects, *self.assignments):
            reached.mark(number)
        return inputs

    def all_ran(self) -> bool:
        """Whether every edit has run so far."""
        return reached.seen() >= self.numbers

    @property
    def is_exact(self) -> bool:
        """Each edit stands where it will stand; if not, a step that fails tells nothing."""
        return not self.effects and not self.assignments


@contextlib.contextmanager
def placed(edits: Collection[Edit], subjects: Subjects, ran: Collection[Line] = ()) -> Iterator[Placed]:
    """Run the block with some edits.

    Args:
        edits: of any files.
        subjects: what the step works on.
        ran: lines that the step is known to run.

    Raises:
        NotTried: if they cannot be put in place.
    """
    functions = live_functions({edit.file for edit in edits})
    numbers = {edit: number for number, edit in enumerate(edits)}
    pairs, effects, assignments = [], dict[int, Effect](), dict[int, Assignment]()
    for file, live in functions.items():
        mine = [edit for edit in numbers if edit.file == file]
        whole = edited(file, mine, [numbers[edit] for edit in mine], live[0].__code__.co_flags if live else 0)
        pairs += with_new_code(whole, live)
        for edit, place, statements in zip(mine, whole.places, whole.statements, strict=True):
            if place.function is None:
                assignments[numbers[edit]] = assignment_of(whole, edit, statements, live, ran)
            elif place.function.name == "__init__":
                effects[numbers[edit]] = effect_of(whole, edit, statements, live)
    reached.clear()
    with Undo() as undo:
        for each in assignments.values():
            undo.add(each.names.__setitem__, each.name, each.names[each.name])
        put_in_place(pairs, undo)
        yield Placed(subjects, frozenset(numbers.values()), effects, assignments)
