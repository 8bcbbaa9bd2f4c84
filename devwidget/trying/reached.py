"""Which edits of the running trial the program has come to: the edited code calls `mark` right before each."""

from __future__ import annotations

import ast

_seen: set[int] = set()


def mark(number: int) -> None:
    """The edit with that number is about to run."""
    _seen.add(number)


def clear() -> None:
    """A new trial begins."""
    _seen.clear()


def seen() -> frozenset[int]:
    """Numbers of the edits that have run."""
    return frozenset(_seen)


def marker(number: int, place: ast.stmt) -> ast.stmt:
    """The statement that calls `mark`, at the line of another; it needs no name in the user's namespace."""
    call = ast.parse(f"__import__({__name__!r}, fromlist=['mark']).mark({number})").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, place)
    return call
