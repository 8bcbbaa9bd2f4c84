"""Quiet: what a step prints, warns of and logs has been printed, warned of and logged once already."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator

from devwidget.capture.undo import Undo


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop all of it; an error that a warning has become is raised as before."""
    with Undo() as undo:
        for stream in ("stdout", "stderr"):
            undo.add(setattr, sys, stream, getattr(sys, stream))
            setattr(sys, stream, io.StringIO())
        undo.enter(warnings.catch_warnings(record=True))
        undo.add(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        yield
