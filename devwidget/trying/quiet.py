"""Quiet: what a step prints, warns of and logs has been printed, warned of and logged once already."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop all of it; an error that a warning has become is raised as before."""
    before = logging.root.manager.disable
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(record=True),
    ):
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)
