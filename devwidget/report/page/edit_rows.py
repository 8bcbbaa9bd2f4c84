"""Show an edit as rows of a diff, with the changed words marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from devwidget.records.finding import Edit

Part = tuple[str, bool]
Row = tuple[str, int, list[Part]]
"""`-` or `+`, the number of the line, and its text in parts, each with whether it changes."""

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_LEAST_ALIKE = 0.3
"""Share of two lines that is the same, below which one was not made of the other: no word of them is marked."""


def edit_rows(edit: Edit) -> list[Row]:
    """The lines that differ, old ones before the new ones that replace them, with their common indent taken off."""
    rows: list[Row] = []
    old, new = edit.old_lines, edit.new_lines
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        before, after = _mark_lines(old[i:j], new[k:m])
        for at, parts in enumerate(before):
            rows.append(("-", edit.first + i + at, parts))
        for at, parts in enumerate(after):
            rows.append(("+", edit.first + k + at, parts))
    return _without_indent(rows)


def _mark_lines(old: list[str], new: list[str]) -> tuple[list[list[Part]], list[list[Part]]]:
    """Lines in parts; as many old ones as new ones are compared in pairs."""
    if len(old) != len(new):
        return [[(line, False)] for line in old], [[(line, False)] for line in new]
    before, after = [], []
    for ours, theirs in map(_marked, old, new):
        before.append(ours)
        after.append(theirs)
    return before, after


def _marked(old: str, new: str) -> tuple[list[Part], list[Part]]:
    """Both lines in parts."""
    ours, theirs = _TOKEN.findall(old), _TOKEN.findall(new)
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.ratio() < _LEAST_ALIKE:
        return [(old, False)], [(new, False)]
    before: list[Part] = []
    after: list[Part] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        before.append(("".join(ours[i:j]), tag != "equal"))
        after.append(("".join(theirs[k:m]), tag != "equal"))
    return _joined(before), _joined(after)


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Without empty parts; a blank between two changes changes with them."""
    joined: list[Part] = []
    for text, changes in parts:
        if text and joined and joined[-1][1] == changes:
            joined[-1] = joined[-1][0] + text, changes
        elif text and changes and len(joined) > 1 and not joined[-1][0].strip() and joined[-2][1]:
            joined[-2:] = [(joined[-2][0] + joined[-1][0] + text, True)]
        elif text:
            joined.append((text, changes))
    return joined


def _without_indent(rows: list[Row]) -> list[Row]:
    indents = []
    for _, _, parts in rows:
        text = "".join(text for text, _ in parts)
        if text.strip():
            indents.append(len(text) - len(text.lstrip()))
    shift = min(indents, default=0)
    return [(sign, number, _cut_start(parts, shift)) for sign, number, parts in rows]


def _cut_start(parts: list[Part], shift: int) -> list[Part]:
    """Without the first letters."""
    cut: list[Part] = []
    for text, changes in parts:
        if text[shift:]:
            cut.append((text[shift:], changes))
        shift = max(0, shift - len(text))
    return cut
