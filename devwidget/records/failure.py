"""Failure: the exception that ended a recording, and where."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.site import Site


@dataclass(frozen=True, slots=True)
class Failure:
    """What stopped the program.

    Attributes:
        kind: class name of the exception, such as `ValueError`.
        message: its own words.
        site: the innermost line of user code, None if the traceback has none.
        module: path of the innermost module that the exception left, None outside the model.
        frames: `file:line in function: source` for each frame of the traceback, outermost first, without the frames
            that virtual GPUs add.
        out_of_memory: whether a device had no room.
    """

    kind: str
    message: str
    site: Site | None = None
    module: str | None = None
    frames: tuple[str, ...] = ()
    out_of_memory: bool = False
