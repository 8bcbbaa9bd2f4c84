"""Replacing an attribute for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """`owner.name` is the replacement inside the block, and what it was before after it."""
    own = name in vars(owner)
    original = vars(owner)[name] if own else None
    try:
        setattr(owner, name, replacement)
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)
