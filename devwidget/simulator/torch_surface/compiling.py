"""Compiled code and higher-order operators beside the simulator: their eager originals run, as in a recording."""

from __future__ import annotations

from devwidget.capture.patches.compiled import eager_originals
from devwidget.capture.patches.higher_order import higher_order
from devwidget.simulator.patching import Patches


def install(patches: Patches) -> None:
    """Until the simulation ends."""
    eager_originals(lambda note: None, patches.undo)
    higher_order(None, patches.undo)
