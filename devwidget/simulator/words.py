"""Long lists of names, written as text."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()
