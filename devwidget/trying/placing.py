"""Placing: the edits of a trial put where they belong, whatever kind of line each of them changes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from devwidget.capture.restore import keeping
from devwidget.records.finding import Edit
from devwidget.trying import reached
from devwidget.trying.constructors import Effect, effect_of
from devwidget.trying.edited_file import edited
from devwidget.trying.functions import in_place, live_functions, with_new_code
from devwidget.trying.made_modules import apply_effects
from devwidget.trying.subjects import Subjects


@dataclass(frozen=True, slots=True)
class Placed:
    """A trial under way.

    Attributes:
        subjects: what the step is given now.
        numbers: of the edits.
        is_exact: each edit stands where it will stand; if not, a step that fails tells nothing.
    """

    subjects: Subjects
    numbers: frozenset[int]
    is_exact: bool

    def all_ran(self) -> bool:
        """Whether every edit has run so far."""
        return reached.seen() >= self.numbers


@contextlib.contextmanager
def placed(edits: Collection[Edit], subjects: Subjects) -> Iterator[Placed]:
    """Run the block with some edits.

    Raises:
        NotTried: if they cannot be put in place.
    """
    functions = live_functions({edit.file for edit in edits})
    numbers = {edit: number for number, edit in enumerate(edits)}
    pairs, effects = [], dict[int, Effect]()
    for file, live in functions.items():
        mine = [edit for edit in numbers if edit.file == file]
        whole = edited(file, mine, [numbers[edit] for edit in mine], live[0].__code__.co_flags if live else 0)
        pairs += with_new_code(whole, live)
        for edit, place, statements in zip(mine, whole.places, whole.statements, strict=True):
            if place.function is not None and place.function.name == "__init__":
                effects[numbers[edit]] = effect_of(whole, edit, statements, live)
    reached.clear()
    with contextlib.ExitStack() as stack:
        if effects:
            stack.enter_context(keeping(subjects.model, subjects.optimizer, subjects.loss_fn))
            apply_effects(list(effects.values()), subjects)
            for number in effects:
                reached.mark(number)
        stack.enter_context(in_place(pairs))
        yield Placed(subjects, frozenset(numbers.values()), not effects)
