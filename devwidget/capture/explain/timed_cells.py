"""Find the source of cells under `%%time` and `%%timeit`, which IPython compiles under its own file name."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterator
from types import FrameType
from typing import Any

from devwidget.capture.source_code.source_files import codes_in
from devwidget.capture.source_code.stack import locals_of, steps_down

_TEXTS = {"<timed exec>": ("expr",), "<timed eval>": ("expr",), "<magic-timeit>": ("cell", "stmt")}
"""File names of the code, and the variables in which the magic's function has the text."""
_MAGICS = ("magics/execution.py", "magics\\execution.py")


@contextlib.contextmanager
def sources_at_hand(error: BaseException) -> Iterator[None]:
    """Let `linecache` find the source of a timed cell while the block runs, taken from the frame that ran it."""
    name, text = _find_text([step.tb_frame for step in steps_down(error.__traceback__)])
    if text:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        yield
    finally:
        if text:
            linecache.cache.pop(name, None)


def _find_text(frames: list[FrameType]) -> tuple[str, str]:
    """Return the name and source of a timed cell; "" if a function of an earlier cell with the same file name ran."""
    variables: dict[str, Any] = {}
    for at, frame in enumerate(frames):
        name = frame.f_code.co_filename
        if name.endswith(_MAGICS):
            variables |= locals_of(frame)
        if name in _TEXTS:
            codes = {each.f_code for each in frames[at:] if each.f_code.co_filename == name}
            texts = [variables[key] for key in _TEXTS[name] if type(variables.get(key)) is str]
            if texts and name not in linecache.cache and codes <= set(codes_in(frame.f_code)):
                return name, texts[0]
            return name, ""
    return "", ""
