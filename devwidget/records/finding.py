"""Finding: one problem, where and why it occurs, and the edit that fixes it."""

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
from devwidget.records.site import Site, cell_label

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""Worst first."""
Confidence = Literal["sure", "likely", "choice"]
RoleKind = Literal["answered", "waiting", "absent", "behind"]

_CONTEXT = 2

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RankRole:
    """What some ranks do, in a finding over ranks.

    Attributes:
        kind: `answered` for ranks that reported, `waiting` and `absent` for a collective, `behind` for ranks in another one.
        name: name of the collective's group.
        call: the collective.
        how: why they are absent; "before" for ranks that waited earlier.
        count: number of the collective in its group.
        ranks: their rank numbers.
    """

    kind: RoleKind
    name: str = ""
    call: str = ""
    how: str = ""
    count: Size = 0
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Edit:
    """Whole lines of a file and their replacement.

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
        """Return where it is."""
        return Site(self.file, self.first)

    @property
    def old_lines(self) -> list[str]:
        """Return the replaced lines."""
        if self.last >= self.first:
            return self.was.split("\n")
        return []

    @property
    def new_lines(self) -> list[str]:
        """Return the new lines."""
        if self.text:
            return self.text.split("\n")
        return []

    def meets(self, other: Edit) -> bool:
        """Return whether both edits change the same line."""
        return self.file == other.file and max(self.first, other.first) <= min(self.last, other.last)

    def fits(self, lines: Sequence[str]) -> bool:
        """Return whether a file still has the old lines, or does not yet have the inserted ones."""
        if self.last < self.first:
            there = lines[self.first - 1 : self.first - 1 + len(self.new_lines)]
            return len(lines) >= self.last and list(there) != self.new_lines
        return list(lines[self.first - 1 : self.last]) == self.old_lines

    def diff(self) -> str:
        """Return a unified diff, with context lines if the file still has the old lines."""
        lines = [line.rstrip("\n") for line in linecache.getlines(self.file)]
        known = self.fits(lines)
        if known:
            before = lines
        else:
            before = [""] * (self.first - 1) + self.old_lines
        name = cell_label(self.file) or self.file
        names = {"fromfile": name, "tofile": name, "lineterm": ""}
        return "\n".join(difflib.unified_diff(before, apply_edits(before, [self]), n=_CONTEXT if known else 0, **names))


def apply_edits(lines: Iterable[str], edits: Iterable[Edit]) -> list[str]:
    """Return the lines of a file after edits that refer to its current line numbers."""
    return splice_lines(lines, edits, lambda edit: edit.new_lines)


def splice_lines(of_lines: Iterable[_T], edits: Iterable[Edit], of_new: Callable[[Edit], list[_T]]) -> list[_T]:
    """Return one value per line of a file after edits that provide values for their new lines."""
    result = list(of_lines)
    for edit in sorted(edits, key=lambda edit: (edit.first, edit.last), reverse=True):
        result[edit.first - 1 : edit.last] = of_new(edit)
    return result


def _make_printable(record: object, *names: str) -> None:
    """Escape user text so that it cannot end a line or change colours. Paths and sites stay unchanged."""
    for name in names:
        text = getattr(record, name)
        safe = escape_sentence(text) if isinstance(text, str) else tuple(map(escape_sentence, text))
        if safe != text:
            object.__setattr__(record, name, safe)


class Attempt(Protocol):
    """Runs fixes of a trace while the objects of its step exist. Keeps none of them alive."""

    def __call__(self, fix: Fix) -> Fix:
        """See `Fix.try_it`."""


@dataclass(frozen=True, slots=True)
class RegisterBuffers:
    """Plain attributes become buffers.

    Attributes:
        file: file of the class.
        class_name: class whose constructor is edited.
        attributes: attributes that hold tensors, or None.
    """

    file: str
    class_name: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _OfAttribute:
    """One attribute. Fields as in `RegisterBuffers`."""

    file: str
    class_name: str
    attribute: str


@dataclass(frozen=True, slots=True)
class RegisterParameters(_OfAttribute):
    """A tensor becomes a parameter; a list or dict of tensors one of parameters."""


@dataclass(frozen=True, slots=True)
class RegisterModules(_OfAttribute):
    """A list or dict of modules becomes a module."""


@dataclass(frozen=True, slots=True)
class PlaceAttribute(_OfAttribute):
    """The tensor of a plain attribute is created on another device."""

    device: str


Effect = RegisterBuffers | RegisterParameters | RegisterModules | PlaceAttribute
"""What an edit of a constructor changes in existing modules, set by the rule that wrote the edit."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A way to fix a finding.

    Attributes:
        summary: what to do, a phrase.
        code: the new lines of an edit, dedented, or what to write if no edit can be made; "" for advice in words.
        confidence: `sure`, `likely`, or `choice` (one of several designs). An edit is only sure if it was verified.
        verified: the step ran twice with this edit and without the fault; only other findings were repaired.
        edits: edits that are applied together; () for advice in words.
        warns: kind and place of a warning that appears only with this edit, so that it is not verified.
        not_tried: why the edit was not run; "" if it was, or if you did not ask for that.
        fails: the step with this edit failed, or gave another result; set only by `try_it`.
        runs: how often `try_it` ran the step for this.
        not_compared: why its result was not compared with the same step on one device; "" if it was.
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
        """Return the edits as a unified diff; "" without any."""
        return "\n".join(edit.diff() for edit in self.edits)

    def try_it(self) -> Fix:
        """Run the step of the trace again, repaired and on one device, and up to twice with this edit. Everything is restored.

        Each run repeats what the step writes to files, prints outside of Python, or sends. Other threads run the edited
        functions meanwhile. In a distributed job only this rank runs the step.

        Returns:
            This fix with its result: `verified`, `warns`, `fails` or `not_tried`.

        Raises:
            DevwidgetError: if it has no edit, the trace was loaded, copied to another process or has no step of its own, an
                object of the step no longer exists, or the step no longer has this fault.
        """
        if not self.edits:
            raise DevwidgetError(
                Message("this fix cannot be tried"),
                why=Message("it is advice in words and has no edit"),
                instead=Message("a fix with `edits`"),
            )
        if self._attempt.value is None:
            raise DevwidgetError(
                Message("this fix cannot be tried"),
                why=Message("it was loaded, created in another process or by hand, or found without running a step"),
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
        also: further module paths with the same cause.
        fault: the user's line that fails, syncs or transfers.
        birth: the user's line that created or moved the tensor.
        birth_moves: True if that line moves it.
        fixes: best first; edits before advice in words.
        notes: context, one sentence each.
        operands: the tensors of the call, for display (`input f32[8, 512] cuda:0`).
        explains: numbers of the trace's faults behind it.
        cause: shared by findings of one root cause; "" for the line of birth, else of fault.
        roles: what the ranks in it do; () for a single process.
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
