"""Compiled code and higher-order operators beside the simulator: their eager originals run, as in a recording."""

from __future__ import annotations

import contextlib

from devwidget.capture.patches.compiled import eager_originals
from devwidget.capture.patches.higher_order import higher_order
from devwidget.simulator.patching import Patches


def install(patches: Patches) -> None:
    """Until the simulation ends."""
    stack = contextlib.ExitStack()
    stack.enter_context(eager_originals())
    stack.enter_context(higher_order())
    patches.on_undo(stack.close)
