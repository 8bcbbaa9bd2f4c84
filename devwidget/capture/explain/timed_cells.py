"""Cells under `%%time` and `%%timeit`: IPython compiles them under a name of its own, and keeps their source nowhere."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterator
from types import CodeType, FrameType

from devwidget.capture.explain.traceback_frames import steps_down
from devwidget.capture.source_code.call_sites import locals_of

_TEXTS = {"<timed exec>": ("expr",), "<timed eval>": ("expr",), "<magic-timeit>": ("cell", "stmt")}
"""Names of the code, and the variables in which the function that runs the magic has the text."""
_MAGICS = ("magics/execution.py", "magics\\execution.py")


@contextlib.contextmanager
def sources_at_hand(error: BaseException) -> Iterator[None]:
    """Let `linecache` find the source of a timed cell, taken from the frame that ran it, while the block runs."""
    frames = [step.tb_frame for step in steps_down(error.__traceback__)]
    names = [frame.f_code.co_filename for frame in frames]
    given = {name: text for name in _TEXTS if name in names and (text := _text_for(frames, names.index(name)))}
    linecache.cache.update({name: (len(text), None, text.splitlines(keepends=True), name) for name, text in given.items()})
    try:
        yield
    finally:
        for name in given:
            linecache.cache.pop(name, None)


def _text_for(frames: list[FrameType], at: int) -> str:
    """The source of a frame; "" if a function of an earlier cell, whose code bears the same name, has run below it."""
    name = frames[at].f_code.co_filename
    codes = {frame.f_code for frame in frames[at:] if frame.f_code.co_filename == name}
    known = name in linecache.cache or not codes <= set(_codes_in(frames[at].f_code))
    return "" if known else _text_of(frames[:at], _TEXTS[name])


def _text_of(above: list[FrameType], names: tuple[str, ...]) -> str:
    """What the innermost function of a magic was given to run."""
    magics = (locals_of(frame) for frame in reversed(above) if frame.f_code.co_filename.endswith(_MAGICS))
    found = (variables.get(name) for variables in magics for name in names)
    return next((text for text in found if type(text) is str and text), "")


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions and classes that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_in(constant)
