"""A status line of a terminal for a watched run, drawn over itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Mapping
from typing import TextIO

from devwidget.extras.watch.records.run import FIRST, PARTS
from devwidget.extras.watch.words.run import progress_words
from devwidget.report.text.draw_text import cut_line

SECONDS_APART = 0.5
_ERASE = "\r\033[K"
_COLUMNS = 80
"""Of a terminal that does not say."""


class StatusLine:
    """Show the steps on a terminal as they end; prints nothing elsewhere.

    Output of the program follows the line, and the next one is drawn below.

    Args:
        stream: Stream of the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_terminal = stream, stream.isatty()
        self._shown = time.monotonic()
        self._steps, self._times = 0, Counter[str]()

    def show_step(self, row: Mapping[str, int], found: int) -> None:
        """Draw the line after a step, if the last one was visible for a while."""
        if not self._is_terminal:
            return
        self._steps += 1
        self._times.update({part: row[part] for part in PARTS})
        now = time.monotonic()
        if now - self._shown < SECONDS_APART:
            return
        means = {part: passed / self._steps / 1e6 for part, passed in self._times.items() if passed}
        memory = {name.removesuffix(" allocated"): size for name, size in row.items() if name.endswith(" allocated")}
        self._draw(progress_words(row[FIRST], means, memory, found))
        self._shown, self._steps, self._times = now, 0, Counter()

    def erase(self) -> None:
        """Erase the line before other output."""
        if self._is_terminal:
            self._draw("")

    def _draw(self, words: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a terminal that went away, a stream that is closed
            columns = os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
            self._stream.write(_ERASE + cut_line(words, columns - 1))
            self._stream.flush()
