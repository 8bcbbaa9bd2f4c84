"""How operators and factories run without values: on meta, and once more on what is known, so that more is known afterwards."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from devwidget.extras.meta import known_values
from devwidget.extras.meta.meta_kernels import META_KERNELS
from devwidget.gpus.call import Call
from devwidget.gpus.labels import CPU_DEVICE, META_DEVICE
from devwidget.gpus.operators import read_schema
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import OpOverload, tree_leaves, tree_map_only


class ValueRoles:
    """What values mean to an operator.

    Attributes:
        reads: the shape of its result, or the result itself, follows from values.
        draws: at random, or does we know not what, being of another library.
        mask_at: the argument that tells which gradients are wanted.
    """

    def __init__(self, func: OpOverload) -> None:
        arguments = func._schema.arguments
        self.name = func._schema.name.removeprefix("aten::")
        self.schema, _ = read_schema(func)
        self.is_view = not self.schema.written and any(returned.alias_info is not None for returned in func._schema.returns)
        self.reads = torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags
        self.draws = torch.Tag.nondeterministic_seeded in func.tags or func.namespace != "aten"
        self.names = list(self.schema.names)
        self.defaults = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
        self.mask_at = self.names.index("output_mask") if "output_mask" in self.names else None


_roles_of = functools.cache(ValueRoles)
"""Roles are read once from each schema."""


CHOOSERS = frozenset({"topk", "argmax", "argmin", "max", "min", "sort"})


def _spread_choices(
    chooser: str, dim: int | None, given: torch.Tensor, result: Any
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The tensor of the places that an operator chose along a dimension, or of all elements, and each place in turn for it.

    None if it chose no places. It returned places, or values and places.
    """
    if isinstance(result, (list, tuple)):
        places = result[1]
    elif chooser.startswith("arg"):
        places = result
    else:
        return None
    if not given.dim() or not given.numel():
        return None
    options = given.numel() if dim is None else given.shape[dim]
    in_turn = torch.arange(places.numel()) % options
    if dim is None or places.dim() < given.dim():
        return places, in_turn.reshape(places.shape)
    return places, in_turn.reshape(places.movedim(dim, -1).shape).movedim(-1, dim)


FILLERS = "zeros_like ones_like full_like new_zeros new_ones new_full".split()
"""They look at no value of the tensor they are given."""
LARGEST_DRAW = 1 - 2**-24


def call_factory(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], on_meta: bool) -> Any:
    """Call a factory for the device that stands for all others; `kwargs` has none, `on_meta` if the user asked for meta."""
    result = func(*tree_map_only(torch.Tensor, known_values.strip_values, args), **{**kwargs, "device": META_DEVICE})
    if not on_meta and isinstance(result, torch.Tensor) and known_values.is_small(result):
        real = _written_down(func, args, kwargs, result)
        if real is not None:
            known_values.keep_values(result, real)
    return result


def _written_down(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Any:
    """What a factory writes; None for real numbers that are drawn, or not written at all."""
    roles, is_real = _roles_of(func), result.dtype.is_floating_point or result.dtype.is_complex
    if is_real and roles.name == "rand" and result.numel() == 1:
        return torch.full_like(result, LARGEST_DRAW, device=CPU_DEVICE)
    if is_real and (roles.draws or "empty" in roles.name):
        return None
    blank: Callable[[torch.Tensor], Any] = lambda tensor: torch.empty_like(tensor, device=CPU_DEVICE)  # noqa: E731
    real = tree_map_only(torch.Tensor, blank, args) if roles.name in FILLERS else known_values.all_known(args)
    if real is None:
        return None
    return func(*real, **{**kwargs, "device": CPU_DEVICE})


def call_operator(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator."""
    roles = _roles_of(func)
    if roles.is_view:
        return _call_on_meta(func, args, kwargs)
    real = None if roles.draws else known_values.all_known((args, kwargs))
    if real is None:
        known_values.forget_values(_list_written(roles, func, args, kwargs))
        if roles.name == "masked_select" and (mask := known_values.all_read(args[1])) is not None:
            return _select_masked(known_values.strip_values(args[0]), mask)
        result = _call_on_meta(func, _find_mask_positions(roles, args), kwargs)
        _keep_suppositions(roles, args, kwargs, result)
        return result
    guessed = known_values.are_guessed()
    if roles.reads:
        known_values.all_read((args, kwargs))
        return tree_map_only(torch.Tensor, known_values.strip_values, func(*real[0], **real[1]))
    result = _call_on_meta(func, args, kwargs)
    _compute_known(func, real, result, _list_written(roles, func, args, kwargs), guessed)
    return result


def _list_written(roles: ValueRoles, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    call = Call(roles.schema, func, args, kwargs)
    return [call[name] for name in roles.schema.written]


def _keep_suppositions(roles: ValueRoles, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """What is taken for granted of unknown numbers: they are finite, and choices among them are spread evenly."""
    answer = _if_finite(roles.name, args)
    if answer is not None and known_values.is_small(result):
        known_values.keep_values(result, answer)
    if roles.name.startswith("_amp_foreach_non_finite_check_and_unscale"):
        # A scaler of the loss asks whether it found an infinite gradient.
        known_values.keep_values(args[1], False)
    if roles.name in CHOOSERS and simulation.on_guess is not None:
        dim = dict(zip(roles.names, args, strict=False)).get("dim", kwargs.get("dim", roles.defaults.get("dim")))
        found = _spread_choices(roles.name, dim, args[0], result)
        if found is not None and known_values.is_small(found[0]):
            known_values.keep_values(*found, guessed=True)


def _if_finite(name: str, args: tuple[Any, ...]) -> bool | None:
    """What an operator says of any tensor without infinities and without numbers that are none; None if it depends."""
    if name in ("isnan", "isinf"):
        return False
    if name not in ("eq", "ne"):
        return None
    other = args[1]
    is_itself, is_infinite = other is args[0], isinstance(other, float) and math.isinf(other)
    return (name == "eq") == is_itself if is_itself or is_infinite else None


def _call_on_meta(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bare_args, bare_kwargs = tree_map_only(torch.Tensor, known_values.strip_values, (args, kwargs))
    result = META_KERNELS.get(func, func)(*bare_args, **bare_kwargs)
    if (place := _roles_of(func).mask_at) is not None and isinstance(result, (list, tuple)):
        # Gradients that nobody asked for: some meta kernels make them all the same.
        result = tuple(part if wanted else None for part, wanted in zip(result, args[place], strict=True))
    # An in-place operation must return the tensor that it was given.
    if bare_args and result is bare_args[0]:
        return args[0]
    return result


def _find_mask_positions(roles: ValueRoles, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Masks among indices become the positions that they select, where these are known."""
    if "indices" not in roles.names or not isinstance(args[1], (list, tuple)):
        return args
    found: list[Any] = []
    for index in args[1]:
        is_mask = isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
        real = known_values.all_read(index) if is_mask else None
        found += [index] if real is None else map(known_values.strip_values, real.nonzero().unbind(1))
    return (args[0], found, *args[2:])


def _select_masked(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    count = int((mask & torch.ones((), dtype=torch.bool).expand(tensor.shape)).sum())
    return torch.empty(count, dtype=tensor.dtype, device=META_DEVICE)


def _compute_known(func: OpOverload, real: Any, result: Any, written: list[Any], guessed: bool) -> None:
    """Compute the values of the result from known ones, unless it is large; an in-place write also updates the known values."""
    results = _list_tensors(result)
    if not all(map(known_values.is_small, results)):
        known_values.forget_values(written)
        return
    found = _list_tensors(func(*real[0], **real[1]))
    if not written:
        for tensor, value in zip(results, found, strict=True):
            known_values.keep_values(tensor, value, guessed)
    elif guessed:
        known_values.mark_guessed(written)


def _list_tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
