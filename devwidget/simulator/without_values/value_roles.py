"""What values mean to an operator, read once from its schema and its tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from devwidget.simulator.torch_internals import OpOverload


class ValueRoles:
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


_known: dict[Any, ValueRoles] = {}


def value_roles_of(func: OpOverload) -> ValueRoles:
    """Read once from the schema."""
    found = _known.get(func)
    if found is None:
        found = _known[func] = ValueRoles(func)
    return found
