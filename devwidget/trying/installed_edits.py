"""The edits of a trial in place: new code for functions, and the effects of edited constructors."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.capture.undo import Undo, paused_gc
from devwidget.records.finding import Edit, Effect
from devwidget.trying.code_swap import Pair, put_codes_in_place
from devwidget.trying.edited_code import EditPlace, NotTried, edit_file, forget_reached, mark_reached, reached_edits
from devwidget.trying.effects import apply_effects
from devwidget.trying.live_functions import LiveFunctions, find_functions


@dataclass(frozen=True, slots=True)
class Placed:
    """A trial under way.

    Attributes:
        step: what is run.
        numbers: of the edits.
        effects: by number, of the edits that have one.
    """

    step: Step
    numbers: frozenset[int]
    effects: Mapping[int, Effect]

    def make_inputs(self) -> Arguments:
        """The arguments of the step, once what has run already has been made up for; all of that is to be put back.

        Raises:
            NotTried: if that cannot be done.
        """
        apply_effects(list(dict.fromkeys(self.effects.values())), self.step)
        for number in self.effects:
            mark_reached(number)
        return self.step.inputs

    def all_ran(self) -> bool:
        """Whether every edit has run so far."""
        return reached_edits() >= self.numbers


@contextlib.contextmanager
def place_edits(
    edits: Collection[Edit],
    step: Step,
    known: LiveFunctions | None = None,
    effects: Mapping[Edit, Effect] | None = None,
) -> Iterator[Placed]:
    """Run the block with some edits.

    Args:
        edits: of any files.
        step: what is run.
        known: the functions that there are, if they have been looked for.
        effects: of edits whose lines have run already.

    Raises:
        NotTried: if they cannot be put in place.
    """
    effects = effects or {}
    pairs = _pair_functions(edits, known or find_functions({edit.file for edit in edits}), effects)
    forget_reached()
    with Undo() as undo:
        put_codes_in_place(pairs, undo)
        numbered = {number: effects[edit] for number, edit in enumerate(edits) if edit in effects}
        yield Placed(step, frozenset(range(len(edits))), numbered)


@paused_gc()  # syntax trees go by themselves
def _pair_functions(edits: Collection[Edit], known: LiveFunctions, effects: Mapping[Edit, Effect]) -> list[Pair]:
    pairs: list[Pair] = []
    by_file: dict[str, dict[Edit, int]] = {}
    for number, edit in enumerate(edits):
        by_file.setdefault(edit.file, {})[edit] = number
    for file, numbers in by_file.items():
        swap, places = edit_file(file, list(numbers), list(numbers.values()))
        for edit, place in zip(numbers, places, strict=True):
            if _has_run(place) and edit not in effects:
                raise NotTried("its lines have run already")
        try:
            pairs += swap.find_pairs(known.by_file[file])
        except SyntaxError as error:
            raise NotTried(str(error)) from error
    return pairs


def _has_run(place: EditPlace) -> bool:
    """Whether lines ran before the step: those of a file, a class or a constructor."""
    return place.function is None or place.function.name == "__init__"
