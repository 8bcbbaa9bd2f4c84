"""Show an edit as rows of a diff, with the changed words marked."""

from __future__ import annotations

import difflib
import re
import textwrap

from devwidget.records.finding import Edit

Part = tuple[str, bool]
Row = tuple[str, int, list[Part]]
"""`-` or `+`, the number of the line, and its text in parts, each with whether it changes."""

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_LEAST_ALIKE = 0.3
"""Share of two lines that is the same, below which one was not made of the other: no word of them is marked."""


def edit_rows(edit: Edit) -> list[Row]:
    """The lines that differ, old ones before the new ones that replace them, without their common indent."""
    lines = textwrap.dedent("\n".join([*edit.old_lines, *edit.new_lines])).split("\n")
    count = len(edit.old_lines)
    old, new = lines[:count], lines[count:]
    rows: list[Row] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        before, after = _mark_lines(old[i:j], new[k:m])
        for at, parts in enumerate(before):
            rows.append(("-", edit.first + i + at, parts))
        for at, parts in enumerate(after):
            rows.append(("+", edit.first + k + at, parts))
    return rows


def _mark_lines(old: list[str], new: list[str]) -> tuple[list[list[Part]], list[list[Part]]]:
    """Lines in parts; as many old ones as new ones are compared in pairs."""
    if len(old) != len(new):
        return [[(line, False)] for line in old], [[(line, False)] for line in new]
    before, after = [], []
    for ours, theirs in map(_mark_words, old, new):
        before.append(ours)
        after.append(theirs)
    return before, after


def _mark_words(old: str, new: str) -> tuple[list[Part], list[Part]]:
    ours, theirs = _TOKEN.findall(old), _TOKEN.findall(new)
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.ratio() < _LEAST_ALIKE:
        return [(old, False)], [(new, False)]
    before: list[Part] = []
    after: list[Part] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        _add_part(before, "".join(ours[i:j]), changes=tag != "equal")
        _add_part(after, "".join(theirs[k:m]), changes=tag != "equal")
    return before, after


def _add_part(parts: list[Part], text: str, *, changes: bool) -> None:
    """Add a part to a line; a blank between two changes changes with them."""
    if not text:
        return
    if parts and parts[-1][1] == changes:
        parts[-1] = (parts[-1][0] + text, changes)
    elif changes and len(parts) > 1 and not parts[-1][0].strip():
        (start, _), (blank, _) = parts[-2:]
        parts[-2:] = [(start + blank + text, True)]
    else:
        parts.append((text, changes))
