"""Which random generators are virtual, told by the C++ object behind them."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from devwidget.simulator.devices.simulation_state import SimulationState

_virtual: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By the address of the C++ object: on its way to a mode, torch wraps a generator in a new Python object."""


def remember(generator: Any) -> None:
    """This generator says that it belongs to a GPU."""
    _virtual[int(generator._cdata)] = generator


def kind_of(generator: torch.Generator) -> str:
    """The device type of a generator as the user knows it."""
    return SimulationState.accelerator.type if int(generator._cdata) in _virtual else generator.device.type  # type: ignore[attr-defined]
