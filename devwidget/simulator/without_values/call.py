"""How an operator runs without values: on meta, and once more on what is known, so that more is known afterwards."""

from __future__ import annotations

import math
from typing import Any

import torch

from devwidget.simulator.devices.labels import META_DEVICE
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.torch_internals import OpOverload, tree_leaves, tree_map_only
from devwidget.simulator.without_values import known_values
from devwidget.simulator.without_values.guessed_choices import CHOOSERS, spread
from devwidget.simulator.without_values.meta_kernels import INSTEAD
from devwidget.simulator.without_values.value_roles import ValueRoles, value_roles_of


def call(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator."""
    roles = value_roles_of(func)
    if roles.is_view:
        return _on_meta(func, args, kwargs)
    real = None if roles.draws else known_values.all_known((args, kwargs))
    if real is None:
        known_values.forget(list(roles.of(args, kwargs)))
        if roles.name == "masked_select" and (mask := known_values.all_read(args[1])) is not None:
            return _selected(known_values.bare(args[0]), mask)
        result = _on_meta(func, _positions(roles, args), kwargs)
        _suppose(roles, args, kwargs, result)
        return result
    guessed = known_values.are_guessed()
    if roles.reads:
        known_values.all_read((args, kwargs))
        return tree_map_only(torch.Tensor, known_values.bare, func(*real[0], **real[1]))
    result = _on_meta(func, args, kwargs)
    _compute(func, real, result, list(roles.of(args, kwargs)), guessed)
    return result


def _suppose(roles: ValueRoles, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """What is taken for granted of unknown numbers: they are finite, and choices among them are spread evenly."""
    answer = _if_finite(roles.name, args)
    if answer is not None and known_values.is_small(result):
        known_values.keep(result, answer)
    if roles.name in CHOOSERS and SimulationState.on_guess is not None:
        dim = dict(zip(roles.names, args, strict=False)).get("dim", kwargs.get("dim", roles.defaults.get("dim")))
        found = spread(roles.name, dim, args[0], result)
        if found is not None and known_values.is_small(found[0]):
            known_values.keep(*found, guessed=True)


def _if_finite(name: str, args: tuple[Any, ...]) -> bool | None:
    """What an operator says of any tensor without infinities and without numbers that are none; None if it depends."""
    if name in ("isnan", "isinf"):
        return False
    if name not in ("eq", "ne"):
        return None
    other = args[1]
    is_itself, is_infinite = other is args[0], isinstance(other, float) and math.isinf(other)
    return (name == "eq") == is_itself if is_itself or is_infinite else None


def _on_meta(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bare_args, bare_kwargs = tree_map_only(torch.Tensor, known_values.bare, (args, kwargs))
    result = INSTEAD.get(func, func)(*bare_args, **bare_kwargs)
    if (place := value_roles_of(func).mask_at) is not None and isinstance(result, (list, tuple)):
        # Gradients that nobody asked for: some meta kernels make them all the same.
        result = tuple(part if wanted else None for part, wanted in zip(result, args[place], strict=True))
    # An in-place operation must return the tensor that it was given.
    return args[0] if bare_args and result is bare_args[0] else result


def _positions(roles: ValueRoles, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Masks among indices become the positions that they select, where these are known."""
    if "indices" not in roles.names or not isinstance(args[1], (list, tuple)):
        return args
    found: list[Any] = []
    for index in args[1]:
        is_mask = isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
        real = known_values.all_read(index) if is_mask else None
        found += [index] if real is None else map(known_values.bare, real.nonzero().unbind(1))
    return (args[0], found, *args[2:])


def _selected(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As many elements as a known mask selects."""
    count = int((mask & torch.ones((), dtype=torch.bool).expand(tensor.shape)).sum())
    return torch.empty(count, dtype=tensor.dtype, device=META_DEVICE)


def _compute(func: OpOverload, real: Any, result: Any, written: list[Any], guessed: bool) -> None:
    """Learn what the result holds, unless it is large; what is written in place is written beside as well."""
    results = _tensors(result)
    if not all(map(known_values.is_small, results)):
        known_values.forget(written)
        return
    found = _tensors(func(*real[0], **real[1]))
    if not written:
        for tensor, value in zip(results, found, strict=True):
            known_values.keep(tensor, value, guessed)
    elif guessed:
        known_values.guess(written)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
