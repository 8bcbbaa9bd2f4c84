"""What traced code prints, and asks: no cell runs then, so that without this it would be shown nowhere."""

from __future__ import annotations

import builtins
import contextlib
import io
from collections.abc import Callable, Iterator

from devwidget.language.speaking import say

MOST = 20_000
"""Characters kept, the last ones: a model that prints every tensor must not fill a page."""


@contextlib.contextmanager
def printed(show: Callable[[str], None]) -> Iterator[None]:
    """Collect what is printed inside, and hand it over at the end, whatever ended it; refuse what is asked."""
    text, asks = io.StringIO(), builtins.input
    show("")
    try:
        builtins.input = _refuse
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            yield
    finally:
        builtins.input = asks
        said = text.getvalue()
        cut = say("... {count} characters before", count=f"{len(said) - MOST:,}")
        show(said if len(said) <= MOST else f"{cut}\n{said[-MOST:]}")


def _refuse(prompt: object = "") -> str:
    raise EOFError(say("`input()` cannot ask while the panel traces, because no cell runs; run `panel.run_trace()` in a cell"))
