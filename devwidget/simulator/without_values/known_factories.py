"""How a factory runs without values: on meta, and beside it for real if it writes down small numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devwidget.simulator.devices.labels import CPU_DEVICE, META_DEVICE
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.torch_internals import OpOverload, tree_map_only
from devwidget.simulator.without_values import known_values
from devwidget.simulator.without_values.value_roles import value_roles_of

FILLERS = "zeros_like ones_like full_like new_zeros new_ones new_full".split()
"""They look at no value of the tensor they are given."""
LARGEST_DRAW = 1 - 2**-24


def create(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], on_meta: bool) -> Any:
    """Call a factory for the device that stands for all others.

    Args:
        func: the operator.
        args: its arguments.
        kwargs: its keywords, without a device.
        on_meta: the user asked for meta.
    """
    if SimulationState.compute:
        return func(*args, **kwargs)
    result = func(*tree_map_only(torch.Tensor, known_values.bare, args), **{**kwargs, "device": META_DEVICE})
    if not on_meta and isinstance(result, torch.Tensor) and known_values.is_small(result):
        real = _written_down(func, args, kwargs, result)
        if real is not None:
            known_values.keep(result, real)
    return result


def _written_down(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Any:
    """What a factory writes; None for real numbers that are drawn, or not written at all."""
    roles, is_real = value_roles_of(func), result.dtype.is_floating_point or result.dtype.is_complex
    if is_real and roles.name == "rand" and result.numel() == 1:
        return torch.full_like(result, LARGEST_DRAW, device=CPU_DEVICE)
    if is_real and (roles.draws or "empty" in roles.name):
        return None
    blank: Callable[[torch.Tensor], Any] = lambda tensor: torch.empty_like(tensor, device=CPU_DEVICE)  # noqa: E731
    real = tree_map_only(torch.Tensor, blank, args) if roles.name in FILLERS else known_values.all_known(args)
    return None if real is None else func(*real, **{**kwargs, "device": CPU_DEVICE})
