"""Show an edit as rows of a diff, with the changed words marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from devwidget.records.finding import Edit

Part = tuple[str, bool]
Row = tuple[str, int, list[Part]]
"""`-` or `+`, the number of the line, and its text in parts, each with whether it changes."""

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_LEAST_ALIKE = 0.3
"""Share of two lines that is the same, below which one was not made of the other: no word of them is marked."""


def edit_rows(edit: Edit) -> list[Row]:
    """The lines that differ, old ones before the new ones in whose place they stood, with their common indent taken off."""
    rows: list[Row] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, edit.old_lines, edit.new_lines, autojunk=False).get_opcodes():
        if tag != "equal":
            rows += _changed_rows(edit.first, range(i, j), range(k, m), edit.old_lines, edit.new_lines)
    return _without_indent(rows)


def _changed_rows(first: int, gone: range, come: range, old: Sequence[str], new: Sequence[str]) -> list[Row]:
    before = [[(old[at], False)] for at in gone]
    after = [[(new[at], False)] for at in come]
    if len(gone) == len(come):
        for at, (a, b) in enumerate(zip(gone, come, strict=True)):
            before[at], after[at] = _marked(old[a], new[b])
    rows: list[Row] = [("-", first + at, parts) for at, parts in zip(gone, before, strict=True)]
    rows += [("+", first + at, parts) for at, parts in zip(come, after, strict=True)]
    return rows


def _marked(old: str, new: str) -> tuple[list[Part], list[Part]]:
    """Both lines in parts."""
    ours, theirs = _TOKEN.findall(old), _TOKEN.findall(new)
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.ratio() < _LEAST_ALIKE:
        return [(old, False)], [(new, False)]
    codes = matcher.get_opcodes()
    return (
        _joined(("".join(ours[i:j]), tag != "equal") for tag, i, j, _, _ in codes),
        _joined(("".join(theirs[k:m]), tag != "equal") for tag, _, _, k, m in codes),
    )


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
    texts = ["".join(text for text, _ in parts) for _, _, parts in rows]
    shift = min((len(text) - len(text.lstrip()) for text in texts if text.strip()), default=0)
    return [(sign, number, _cut_start(parts, shift)) for sign, number, parts in rows]


def _cut_start(parts: list[Part], shift: int) -> list[Part]:
    """Without the first letters."""
    cut: list[Part] = []
    for text, changes in parts:
        if text[shift:]:
            cut.append((text[shift:], changes))
        shift = max(0, shift - len(text))
    return cut
