"""Site: one line of somebody's source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """A place in source code.

    Attributes:
        file: path, or the name that Python gave a notebook cell.
        line: 1-based.
        text: the whole statement around that line, dedented; "" if the source is not at hand.
        function: name of the function or class body that the line is in; `<module>` at top level.
    """

    file: str
    line: int
    text: str = ""
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"
