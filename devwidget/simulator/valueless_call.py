"""How an operator runs without values: on meta, and once more on what is known, so that more is known afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from devwidget.simulator import values
from devwidget.simulator.choices import CHOOSERS, spread
from devwidget.simulator.labels import CPU_DEVICE, META_DEVICE, Books
from devwidget.simulator.valueless_kernels import INSTEAD
from devwidget.simulator.words import words

FILLERS = words("zeros_like ones_like full_like new_zeros new_ones new_full")
"""They look at no value of the tensor they are given."""
LARGEST_DRAW = 1 - 2**-24


class Nature:
    """What values mean to an operator.

    Attributes:
        name: without the overload.
        written: the names of the arguments that it changes.
        is_view: its result shares memory with an argument.
        reads: the shape of its result, or the result itself, follows from values.
        draws: at random, or does we know not what, being of another library.
        names: of its arguments.
        defaults: of those that may be left out.
        mask_at: the argument that tells which gradients are wanted.
    """

    def __init__(self, func: OpOverload) -> None:
        arguments = func._schema.arguments
        self.name = func._schema.name.removeprefix("aten::")
        self.written = {a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write}
        self.is_view = not self.written and any(returned.alias_info is not None for returned in func._schema.returns)
        self.reads = torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags
        self.draws = torch.Tag.nondeterministic_seeded in func.tags or func.namespace != "aten"
        self.names = [argument.name for argument in arguments]
        self.defaults = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
        self.mask_at = self.names.index("output_mask") if "output_mask" in self.names else None

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
        """The arguments that it changes."""
        yield from (value for name, value in zip(self.names, args, strict=False) if name in self.written)
        yield from (value for name, value in kwargs.items() if name in self.written)


_natures: dict[Any, Nature] = {}


def nature_of(func: OpOverload) -> Nature:
    """Read once from the schema."""
    found = _natures.get(func)
    if found is None:
        found = _natures[func] = Nature(func)
    return found


def call(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator."""
    nature = nature_of(func)
    if nature.is_view:
        return _on_meta(func, args, kwargs)
    real = None if nature.draws else values.all_known((args, kwargs))
    if real is None:
        values.forget(list(nature.of(args, kwargs)))
        if nature.name == "masked_select" and (mask := values.all_read(args[1])) is not None:
            return _selected(values.bare(args[0]), mask)
        result = _on_meta(func, _positions(nature, args), kwargs)
        _suppose(nature, args, kwargs, result)
        return result
    guessed = values.are_guessed()
    if nature.reads:
        values.all_read((args, kwargs))
        return tree_map_only(torch.Tensor, values.bare, func(*real[0], **real[1]))
    result = _on_meta(func, args, kwargs)
    _compute(func, real, result, list(nature.of(args, kwargs)), guessed)
    return result


def _suppose(nature: Nature, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """What is taken for granted of unknown numbers: they are finite, and choices among them are spread evenly."""
    answer = _if_finite(nature.name, args)
    if answer is not None and values.is_small(result):
        values.keep(result, answer)
    if nature.name in CHOOSERS and Books.on_guess is not None:
        dim = dict(zip(nature.names, args, strict=False)).get("dim", kwargs.get("dim", nature.defaults.get("dim")))
        found = spread(nature.name, dim, args[0], result)
        if found is not None and values.is_small(found[0]):
            values.keep(*found, guessed=True)


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
    bare_args, bare_kwargs = tree_map_only(torch.Tensor, values.bare, (args, kwargs))
    result = INSTEAD.get(func, func)(*bare_args, **bare_kwargs)
    if (place := nature_of(func).mask_at) is not None and isinstance(result, (list, tuple)):
        # Gradients that nobody asked for: some meta kernels make them all the same.
        result = tuple(part if wanted else None for part, wanted in zip(result, args[place], strict=True))
    # An in-place operation must return the tensor that it was given.
    return args[0] if bare_args and result is bare_args[0] else result


def _positions(nature: Nature, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Masks among indices become the positions that they select, where these are known."""
    if "indices" not in nature.names or not isinstance(args[1], (list, tuple)):
        return args
    found: list[Any] = []
    for index in args[1]:
        is_mask = isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
        real = values.all_read(index) if is_mask else None
        found += [index] if real is None else map(values.bare, real.nonzero().unbind(1))
    return (args[0], found, *args[2:])


def _selected(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As many elements as a known mask selects."""
    count = int((mask & torch.ones((), dtype=torch.bool).expand(tensor.shape)).sum())
    return torch.empty(count, dtype=tensor.dtype, device=META_DEVICE)


def _compute(func: OpOverload, real: Any, result: Any, written: list[Any], guessed: bool) -> None:
    """Learn what the result holds, unless it is large; what is written in place is written beside as well."""
    results = _tensors(result)
    if not all(map(values.is_small, results)):
        values.forget(written)
        return
    found = _tensors(func(*real[0], **real[1]))
    if not written:
        for tensor, value in zip(results, found, strict=True):
            values.keep(tensor, value, guessed)
    elif guessed:
        values.guess(written)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def create(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], on_meta: bool) -> Any:
    """Call a factory for the device that stands for all others.

    Args:
        func: the operator.
        args: its arguments.
        kwargs: its keywords, without a device.
        on_meta: the user asked for meta.
    """
    if Books.compute:
        return func(*args, **kwargs)
    result = func(*tree_map_only(torch.Tensor, values.bare, args), **{**kwargs, "device": META_DEVICE})
    if not on_meta and isinstance(result, torch.Tensor) and values.is_small(result):
        real = _written_down(func, args, kwargs, result)
        if real is not None:
            values.keep(result, real)
    return result


def _written_down(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor) -> Any:
    """What a factory writes; None for real numbers that are drawn, or not written at all."""
    nature, is_real = nature_of(func), result.dtype.is_floating_point or result.dtype.is_complex
    if is_real and nature.name == "rand" and result.numel() == 1:
        return torch.full_like(result, LARGEST_DRAW, device=CPU_DEVICE)
    if is_real and (nature.draws or "empty" in nature.name):
        return None
    blank: Callable[[torch.Tensor], Any] = lambda tensor: torch.empty_like(tensor, device=CPU_DEVICE)  # noqa: E731
    real = tree_map_only(torch.Tensor, blank, args) if nature.name in FILLERS else values.all_known(args)
    return None if real is None else func(*real, **{**kwargs, "device": CPU_DEVICE})
