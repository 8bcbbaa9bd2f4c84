"""Edits of source files: changes of single expressions collected, checked by the parser, and written as whole lines."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from devwidget.records.device import DeviceId
from devwidget.records.finding import Confidence, Edit, Fix
from devwidget.records.site import Site
from devwidget.records.syntax import arguments_in, own_lines
from devwidget.records.trace import Fault
from devwidget.rules.edits.devices import goes_to
from devwidget.rules.edits.refusals import refused
from devwidget.rules.edits.source_file import Code, code_of_site, edited_code, keyword_of

_LITERAL = re.compile(r"""(['"])([^'"\\\n]*)\1""")
_ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Dict, ast.ListComp, ast.DictComp, ast.Tuple)


@dataclass(frozen=True, slots=True, order=True)
class _Change:
    """A stretch of text, from (line, byte column) to (line, byte column), and what it becomes."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass
class Draft:
    """Changes of one file that belong together."""

    code: Code
    changes: set[_Change] = field(default_factory=set)
    inserted: dict[int, list[str]] = field(default_factory=dict)
    removed: set[tuple[int, int]] = field(default_factory=set)
    is_futile: bool = False
    """A change would do nothing, or have the program write into a temporary copy; then there are no edits."""

    def replace(self, node: ast.AST, text: str) -> None:
        """Another text in the place of a node."""
        start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        self.changes.add(_Change(start, end, text))

    def unwrap(self, node: ast.expr, inner: ast.expr) -> None:
        """An expression in the place of one around it, in parentheses where its operators would bind less."""
        text = self.code.text(inner)
        alone = isinstance(inner, _ATOMS) or isinstance(self.code.parents.get(node), ast.stmt)
        self.replace(node, text if alone else f"({text})")

    def append(self, node: ast.expr, text: str) -> None:
        """`node` becomes `node.to(device)`, in parentheses where its operators would bind less."""
        if self.code.text(node).endswith(".detach()"):
            text = text.removeprefix(".detach()")
        if self.code.is_written(node) or self._is_idle(node, text):
            self.is_futile = True
        method = self.code.parents.get(node)
        if isinstance(node, _ATOMS):
            self.changes.add(_Change(_end(node), _end(node), text))
        elif isinstance(method, ast.Attribute):  # `(a == b).numpy()` has its parentheses
            self.changes.add(_Change(_dot(method), _dot(method), text))
        else:
            self.replace(node, f"({self.code.text(node)}){text}")

    def _is_idle(self, node: ast.expr, text: str) -> bool:
        """Whether a move would leave a node where it is, or where a move of the whole that it is a part of takes it anyway."""
        own = self.code.text(node)
        stays = own.endswith(text) or text == f".to({own}.device)"
        return stays or (text.startswith(".to(") and self.code.is_moved_as_part(node))

    def drop_method(self, call: ast.Call, instead: str = "") -> None:
        """`x.to(device)` becomes `x`, or has another method `instead`; something else may change in `x`, too."""
        if isinstance(call.func, ast.Attribute):
            self.changes.add(_Change(_dot(call.func), _end(call), instead))

    def leave_out(self, statement: ast.stmt, target: DeviceId) -> None:
        """Every tensor of a statement without the call that moves it to a device: `x.cpu()` becomes `x`."""
        for call in self.code.calls(statement):
            if isinstance(call.func, ast.Attribute) and goes_to(call, target):
                self.unwrap(call, call.func.value)

    def insert_argument(self, call: ast.Call, value: str) -> None:
        """A positional argument in front of the others."""
        start = (_end(call.func)[0], _end(call.func)[1] + 1)
        if arguments_in(call):
            value = f"{value}, "
        self.changes.add(_Change(start, start, value))

    def keyword(self, call: ast.Call, name: str, value: str) -> None:
        """A keyword argument, in the place of one of that name."""
        old = keyword_of(call, name)
        if old is not None:
            self.replace_device(old, value)
            return
        line, column = _end(call)
        end, text = (line, column - 1), f"{name}={value}"
        if given := arguments_in(call):
            end, text = max(map(_end, given)), f", {text}"
        self.changes.add(_Change(end, end, text))

    def replace_device(self, old: ast.expr, value: str) -> None:
        """Another value in the place of an argument, but no literal in the place of a name, which would lose its effect."""
        if value[:1] in "'\"" and not isinstance(old, ast.Constant):
            self.is_futile = True
        self.replace(old, value)

    def insert_above(self, statement: ast.stmt, text: str) -> None:
        """New lines above a statement."""
        self._insert(own_lines(statement).start, statement, text)

    def decorate(self, function: ast.FunctionDef, text: str) -> None:
        """A decorator next to the function, below those that it has."""
        self._insert(function.lineno, function, text)

    def insert_below(self, statement: ast.stmt, text: str) -> None:
        """New lines below a simple statement."""
        self._insert((statement.end_lineno or statement.lineno) + 1, statement, text)

    def rewrite(self, statement: ast.stmt, text: str) -> None:
        """Other lines in the place of a simple statement; a comment behind it stays."""
        indent = " " * statement.col_offset
        self.replace(statement, textwrap.indent(text, indent).lstrip())

    def remove(self, statement: ast.stmt) -> None:
        """The lines of a simple statement, gone."""
        self.removed.add((statement.lineno, statement.end_lineno or statement.lineno))

    def insert_in_front(self, node: ast.AST, text: str) -> None:
        """A text in front of a node."""
        start = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
        self.changes.add(_Change(start, start, text))

    def edits(self) -> tuple[Edit, ...]:
        """The changes as whole lines; () if they are futile, two of them overlap or the file would not parse."""
        if self.is_futile:
            return ()
        try:
            edits = tuple(self._edits())
        except _Overlap:
            return ()
        return edits if edited_code(self.code.file, self.code.rows, edits) is not None else ()

    def _insert(self, line: int, beside: ast.stmt, text: str) -> None:
        row = self.code.rows[beside.lineno - 1]
        indent = row[: len(row) - len(row.lstrip())]
        lines = self.inserted.setdefault(line, [])
        new = textwrap.indent(_with_quotes_of(self.code, text), indent)
        if new not in lines:
            lines.append(new)

    def _edits(self) -> Iterable[Edit]:
        for line, texts in self.inserted.items():
            yield Edit(self.code.file, line, line - 1, "\n".join(texts))
        for first, last in self.removed:
            yield Edit(self.code.file, first, last, "", "\n".join(self.code.rows[first - 1 : last]))
        group: list[_Change] = []
        for change in sorted(self.changes):
            if group and change.start[0] > max(c.end[0] for c in group):
                yield self._edit(group)
                group = []
            group.append(change)
        if group:
            yield self._edit(group)

    def _edit(self, group: list[_Change]) -> Edit:
        first, last = group[0].start[0], max(c.end[0] for c in group)
        rows = [row.encode() for row in self.code.rows[first - 1 : last]]
        was = b"\n".join(rows).decode()
        limit: tuple[int, int] = (last + 1, 0)
        for change in reversed(group):
            if change.end > limit:
                raise _Overlap
            (a, left), (b, right) = change.start, change.end
            head, tail = rows[a - first][:left], rows[b - first][right:]
            text = _with_quotes_of(self.code, change.text)
            rows[a - first : b - first + 1] = [head + text.encode() + tail]
            limit = change.start
        return Edit(self.code.file, first, last, b"\n".join(rows).decode(), was)


def _with_quotes_of(code: Code, text: str) -> str:
    """Return a text whose string literals have the quotes of the file. Literals that occur in the file are unchanged."""
    source = "\n".join(code.rows)

    def requote(literal: re.Match[str]) -> str:
        if not code.quote or literal[0] in source:
            return literal[0]
        return f"{code.quote}{literal[2]}{code.quote}"

    return _LITERAL.sub(requote, text)


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _dot(node: ast.Attribute) -> tuple[int, int]:
    """Where the dot in front of the name is."""
    line, column = _end(node)
    return line, column - len(node.attr.encode()) - 1


class _Overlap(Exception):
    """Two changes of one place."""


def fix(summary: str, draft: Draft, confidence: Confidence = "likely") -> Fix | None:
    """A repair that is an edit; None where nothing can be edited."""
    edits = draft.edits()
    return Fix(summary, code_of_edits(edits), confidence, edits=edits) if edits else None


def code_of_edits(edits: Iterable[Edit]) -> str:
    """The new lines alone, dedented."""
    return "\n".join(textwrap.dedent(edit.text) for edit in edits)


def mended(
    site: Site | None,
    summary: str,
    change: Callable[..., object],
    *facts: object,
    confidence: Confidence = "likely",
    instead: str | None = None,
) -> Fix | None:
    """The repair that `change(draft, statement, *facts)` makes of the statement at a site.

    If several statements share the line, exactly one of them must change. Otherwise, and without source, the fix is the text
    `instead`, or None.
    """
    fixes = list[Fix]()
    code = code_of_site(site)
    if code is not None and site is not None:
        for statement in code.statements(site.line):
            draft = Draft(code)
            change(draft, statement, *facts)
            made = fix(summary, draft, confidence)
            if made is not None and made not in fixes:
                fixes.append(made)
    if len(fixes) == 1:
        return fixes[0]
    return None if instead is None else Fix(summary, instead, confidence)


def read_to(draft: Draft, statement: ast.stmt, device: str) -> bool:
    """Add `map_location` to each `torch.load(path)`, which loads tensors to their saved device; False if there is none."""
    loads = [call for call in draft.code.calls(statement) if ast.unparse(call.func) in ("torch.load", "load")]
    for call in loads:
        if len(call.args) > 1:  # the second one is `map_location`
            draft.replace_device(call.args[1], device)
        else:
            draft.keyword(call, "map_location", device)
    return bool(loads)


def merged(many: Iterable[tuple[Edit, ...]]) -> tuple[Edit, ...] | None:
    """The edits of several fixes as one; None if two of them want different things at one place."""
    kept: list[Edit] = []
    for edit in dict.fromkeys(edit for edits in many for edit in edits):
        for index, other in enumerate(kept):
            if edit.meets(other):
                both = _both(edit, other)
                if both is None:
                    return None
                kept[index] = both
                break
        else:
            kept.append(edit)
    return tuple(kept)


def with_others(edit: Edit, many: Iterable[tuple[Edit, ...]]) -> Edit:
    """An edit, and with it what other edits change in the same lines; each of them once, the edit itself too."""
    held = {edit}
    for other in (each for edits in many for each in edits):
        if other not in held and edit.meets(other) and (both := _both(edit, other)) is not None:
            edit = both
        held.add(other)
    return edit


def _both(one: Edit, other: Edit) -> Edit | None:
    """Two edits of the same lines, if they change different parts of them."""
    if (one.first, one.last) != (other.first, other.last):
        return None
    (a, b, first), (c, d, second) = sorted((_stretch(one), _stretch(other)))
    if b > c or (a, b) == (c, d):
        return one if one.text == other.text else None
    text = one.was[:a] + first + one.was[b:c] + second + one.was[d:]
    return Edit(one.file, one.first, one.last, text, one.was)


def _stretch(edit: Edit) -> tuple[int, int, str]:
    """Return where the old text of an edit differs from the new: begin, end, and the new text there."""
    old, new = edit.was, edit.text
    begin = next((i for i, (x, y) in enumerate(zip(old, new, strict=False)) if x != y), min(len(old), len(new)))
    most = min(len(old), len(new)) - begin
    tail = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    return begin, len(old) - tail, new[begin : len(new) - tail]


_is_asked: ContextVar[bool] = ContextVar("_is_asked", default=True)


@contextlib.contextmanager
def without_fixes() -> Iterator[None]:
    """Let rules look for no cures: of the run of a trial it is asked alone what is found."""
    token = _is_asked.set(False)
    try:
        yield
    finally:
        _is_asked.reset(token)


def _is_advice(fix: Fix) -> bool:
    return not fix.edits and fix.confidence != "choice"


def chosen(fixes: Iterable[Fix | None], fault: Fault | None = None) -> tuple[Fix, ...]:
    """The fixes that could be made, each once: edits, then other designs; advice in words only where nothing can be edited.

    Edits that certainly do not fix the fault are left out.
    """
    if not _is_asked.get():
        return ()
    there = []
    for each in dict.fromkeys(fixes):
        # Another design may leave the misplaced tensor where it is.
        if each is not None and not refused(each, fault if each.confidence != "choice" else None):
            there.append(each)
    if any(each.edits for each in there):
        there = list(itertools.filterfalse(_is_advice, there))
    texts: dict[object, Fix] = {}
    for each in there:
        texts.setdefault(each.edits or (each.summary, each.code), each)
    return tuple(sorted(texts.values(), key=lambda each: not each.edits))
