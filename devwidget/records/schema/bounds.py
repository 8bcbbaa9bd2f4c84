"""Sizes: whole numbers of zero or more, so named in the records that a loaded file is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The smallest number that a field may hold."""

    least: int


Size = Annotated[int, AtLeast(0)]
"""Bytes, or a count."""
Length = Annotated[int, AtLeast(-1)]
"""Of one dimension of a shape; -1 where it is ragged."""
Duration = Annotated[float, AtLeast(0)]
"""Seconds."""
