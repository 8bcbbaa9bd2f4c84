"""A lock that is let go in C or in Python's own library, whatever strikes a line of ours."""

from __future__ import annotations

import contextlib
from _thread import RLock


class Lock(RLock, contextlib.ContextDecorator):  # type: ignore[misc]  # final for the type checker alone
    """A lock for the whole of a function: `@Lock()`.

    The last line of a `with` statement can be struck like any other, and would leave a lock taken for ever.
    """
