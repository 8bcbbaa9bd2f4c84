"""Finding: one thing that is wrong, where, why, and the edit that mends it."""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.fields import ProcessLocal, Size, process_local
from devwidget.records.schema.message import Message, escape_sentence
from devwidget.records.schema.record import Record
from devwidget.records.site import Site

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The worst first."""
Confidence = Literal["sure", "likely", "choice"]
RoleKind = Literal["answered", "waiting", "absent", "behind"]

_CONTEXT = 2

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RankRole:
    """What some ranks do, of those that a finding over ranks speaks of.

    Attributes:
        kind: `answered` of those that were heard, `waiting` and `absent` of a collective, `behind` of those in another.
        name: of the group of the collective.
        call: the collective.
        how: why they are absent; "before" of those that waited earlier.
        count: number of the collective in its group.
        ranks: their numbers.
    """

    kind: RoleKind
    name: str = ""
    call: str = ""
    how: str = ""
    count: Size = 0
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Edit:
    """Whole lines of a file and what they become.

    Attributes:
        file: path, or the name that Python gave a notebook cell.
        first: the first line, counted from 1.
        last: the last line, included; `first - 1` inserts before `first`.
        text: the new lines, indented, without a line break at the end; "" removes the old ones.
        was: the old lines, so that the edit can be shown where the file is not.
    """

    file: str
    first: int
    last: int
    text: str
    was: str = ""

    @property
    def site(self) -> Site:
        """Where it is."""
        return Site(self.file, self.first)

    @property
    def old_lines(self) -> list[str]:
        """The lines that are replaced."""
        if self.last >= self.first:
            return self.was.split("\n")
        return []

    @property
    def new_lines(self) -> list[str]:
        """The lines that stand in their place."""
        if self.text:
            return self.text.split("\n")
        return []

    def meets(self, other: Edit) -> bool:
        """Whether both want one line."""
        return self.file == other.file and max(self.first, other.first) <= min(self.last, other.last)

    def fits(self, lines: Sequence[str]) -> bool:
        """Whether a file still has the lines that go, or has not yet those that are put in."""
        if self.last < self.first:
            there = lines[self.first - 1 : self.first - 1 + len(self.new_lines)]
            return len(lines) >= self.last and list(there) != self.new_lines
        return list(lines[self.first - 1 : self.last]) == self.old_lines

    def diff(self) -> str:
        """A unified diff, with some lines around it where the file still is as it was."""
        lines = [line.rstrip("\n") for line in linecache.getlines(self.file)]
        known = self.fits(lines)
        if known:
            before = lines
        else:
            before = [""] * (self.first - 1) + self.old_lines
        names = {"fromfile": self.file, "tofile": self.file, "lineterm": ""}
        return "\n".join(difflib.unified_diff(before, apply_edits(before, [self]), n=_CONTEXT if known else 0, **names))


def apply_edits(lines: Iterable[str], edits: Iterable[Edit]) -> list[str]:
    """The lines of a file after its edits, which name the lines of the file as it is."""
    return splice_lines(lines, edits, lambda edit: edit.new_lines)


def splice_lines(of_lines: Iterable[_T], edits: Iterable[Edit], of_new: Callable[[Edit], list[_T]]) -> list[_T]:
    """What there is of each line of a file, after edits that bring something of each new line."""
    result = list(of_lines)
    for edit in sorted(edits, key=lambda edit: (edit.first, edit.last), reverse=True):
        result[edit.first - 1 : edit.last] = of_new(edit)
    return result


def _make_printable(record: object, *names: str) -> None:
    """A name of the user's in a text can neither end its line nor colour what follows; paths and sites stay what they are."""
    for name in names:
        text = getattr(record, name)
        safe = escape_sentence(text) if isinstance(text, str) else tuple(map(escape_sentence, text))
        if safe != text:
            object.__setattr__(record, name, safe)


class Attempt(Protocol):
    """Tries fixes of a trace, as long as what its step ran on is there; it keeps none of that alive."""

    def __call__(self, fix: Fix) -> Fix:
        """See `Fix.try_it`."""


@dataclass(frozen=True, slots=True)
class RegisterBuffers:
    """Plain attributes become buffers.

    Attributes:
        file: of the class.
        class_name: whose constructor is edited.
        attributes: that hold tensors, or None.
    """

    file: str
    class_name: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegisterParameters:
    """A tensor becomes a parameter; a list or dict of tensors one of parameters.

    Attributes:
        file: of the class.
        class_name: whose constructor is edited.
        attribute: that holds them.
        is_trained: they ask for gradients.
    """

    file: str
    class_name: str
    attribute: str
    is_trained: bool


@dataclass(frozen=True, slots=True)
class RegisterModules:
    """A list or dict of modules becomes a module.

    Attributes:
        file: of the class.
        class_name: whose constructor is edited.
        attribute: that holds them.
    """

    file: str
    class_name: str
    attribute: str


Effect = RegisterBuffers | RegisterParameters | RegisterModules
"""What an edit of a constructor does to the modules that it has made, said by the rule that wrote the edit."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A repair.

    Attributes:
        summary: what to do, a phrase.
        code: the new lines of an edit, dedented, or what to write where no edit can be made; "" for a cure in words.
        confidence: `sure`, `likely`, or `choice` (one of several designs). Sure means tried: what is not verified is likely.
        verified: the step ran twice with this edit and without the fault; at most other findings were healed.
        edits: can be applied together as they are; () for a cure that is no edit.
        warns: kind and place of a warning that the step gives with this edit, and not without: tried, and not verified.
        not_tried: why no run has tried it, though it is an edit; "" if one has, or if nobody asked for that.
        fails: the step with this edit failed, or gave another result; only `try_it` says so.
        runs: how often `try_it` ran the step for this.
        not_compared: why what it gives was not held against the same step with everything on one device; "" if it was.
    """

    summary: str
    code: str = ""
    confidence: Confidence = "likely"
    verified: bool = False
    edits: tuple[Edit, ...] = ()
    warns: str = ""
    not_tried: str = ""
    fails: bool = False
    runs: Size = 0
    not_compared: str = ""
    _attempt: ProcessLocal[Attempt] = process_local()
    _effect: ProcessLocal[Effect] = process_local()

    def __post_init__(self) -> None:
        _make_printable(self, "summary", "warns")
        if self.confidence == "sure" and (not self.verified or self.not_compared):  # whatever a rule thinks of it
            object.__setattr__(self, "confidence", "likely")

    def diff(self) -> str:
        """The edits as a unified diff; "" without any."""
        return "\n".join(edit.diff() for edit in self.edits)

    def try_it(self) -> Fix:
        """Run the step of the trace again, healed and on one device, and up to twice with this edit; all of it is put back.

        It runs wherever it is called: what the step writes, prints past Python, or sends is written, printed or sent once more
        for each run, other threads run the edited functions meanwhile, and in a job this rank alone runs the step.

        Returns:
            This fix with what came of it: `verified`, or `warns`, `fails` or `not_tried`.

        Raises:
            DevwidgetError: if it is no edit, the trace was loaded, copied to another process or has no step of its own, what
                the step ran on is gone, or the step has this fault no longer.
        """
        if not self.edits:
            raise DevwidgetError(
                Message("this fix cannot be tried"),
                why=Message("it is a cure in words, and edits no line"),
                instead=Message("a fix with `edits`"),
            )
        if self._attempt.value is None:
            raise DevwidgetError(
                Message("this fix cannot be tried"),
                why=Message("it was loaded, made in another process or by hand, or found without a step that was run"),
                instead="devwidget.trace(model, batch, verify=True)",
            )
        return self._attempt.value(self)


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """One root cause.

    Attributes:
        kind: a rule's name, such as `wrong-device`.
        severity: `error` (it fails or is wrong), `warning` (it costs time or memory) or `info`.
        module: dotted path of the innermost registered module running; "" for the root, None outside the model.
        headline: the fact, lower case, names in backticks, no full stop.
        why: the rule of PyTorch behind it.
        also: further module paths in which the same cause strikes.
        fault: the user's line that fails, waits or hops.
        birth: the user's line that created or moved the tensor.
        birth_moves: True if that line moves it.
        fixes: best first; edits before cures in words.
        notes: context, one sentence each.
        operands: the tensors that met, for display (`input f32[8, 512] cuda:0`).
        explains: numbers of the trace's faults behind it.
        cause: what two findings of one root cause share; "" for the line of birth, else of fault.
        roles: what the ranks do that it speaks of; () for one of a single process.
    """

    kind: str
    severity: Severity
    module: str | None
    headline: str
    why: str
    also: tuple[str, ...] = ()
    fault: Site | None = None
    birth: Site | None = None
    birth_moves: bool = False
    fixes: tuple[Fix, ...] = ()
    notes: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    explains: tuple[int, ...] = ()
    cause: str = ""
    roles: tuple[RankRole, ...] = ()

    def __post_init__(self) -> None:
        _make_printable(self, "headline", "why", "notes", "operands")
