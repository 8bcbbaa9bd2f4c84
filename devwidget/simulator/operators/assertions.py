"""What kernels assert on a GPU: an index that is none stops them, where the CPU's kernels say what is wrong."""

from __future__ import annotations

import re
from typing import Any

import torch

from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.records.errors import message
from devwidget.records.schema.message import Message
from devwidget.simulator.devices import context, labels
from devwidget.simulator.devices.labels import CPU
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators.op_schema import OpSchema
from devwidget.simulator.torch_internals import DisableTorchFunction, tree_leaves, tree_map_only

INDEXED = frozenset(
    "index _unsafe_index index_put _index_put_impl _unsafe_index_put index_select index_add index_copy index_fill index_reduce "
    "gather scatter scatter_add scatter_reduce take put embedding _embedding_bag _embedding_bag_forward_only nll_loss_forward "
    "nll_loss2d_forward multi_margin_loss".split()
)
"""Operators whose kernels assert that an index is one; without overloads."""
VALUED = frozenset("binary_cross_entropy multinomial bernoulli _assert_async".split())
"""Those that assert the numbers they are given."""
LAUNCH_MORE = frozenset("binary_cross_entropy multinomial".split())
"""Those that begin another kernel, which is told of the first. Seen on an H100."""
_OF_AN_INDEX = re.compile(r"(?<!Dimension )out of (bounds|range)|^embedding_bag: Expected idx")
_OF_A_NUMBER = re.compile(
    "between 0 and 1|invalid multinomial distribution|probability tensor contains|^Expected p_in|single nonzero value"
)
WAITING = frozenset(
    "_local_scalar_dense item nonzero is_nonzero equal masked_select bincount _unique _unique2 unique_dim unique_consecutive "
    "unique_dim_consecutive".split()
)
"""Operators that give the host a number, or ask for the size of their result."""
INTEGERS = (torch.int64, torch.int32)


def is_assertion(schema: OpSchema, error: Exception) -> bool:
    """Whether the CPU's kernel refuses what a GPU's asserts."""
    pattern = _OF_AN_INDEX if schema.base in INDEXED else _OF_A_NUMBER if schema.base in VALUED else None
    return pattern is not None and pattern.search(message(error)) is not None


def note_difference(error: Exception) -> None:
    """Say beside the clear text what CUDA would do."""
    if not SimulationState.compute:
        return
    note = Message(
        "on CUDA the kernel would stop here, a later call would say `device-side assert triggered`, and every call after that "
        'would fail: devwidget.simulate(asserts="device") does the same'
    )
    error.add_note(str(note))


def launches_more(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether it begins another kernel after the one that has stopped: of the loss, the one that reduces it."""
    return schema.base in LAUNCH_MORE and schema.bind_args(args, kwargs).get("reduction", 1) != 0


def replace_refused(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments with others in place of those that were refused, for a result of the same shape; what is in it, nobody
    promises."""
    if schema.base in VALUED:
        return (_fill(args[0], 1), *args[1:]), kwargs
    first, *rest = args

    def replace(tensor: torch.Tensor) -> torch.Tensor:
        return _fill(tensor, 0) if tensor.dtype in INTEGERS else tensor

    return (first, *tree_map_only(torch.Tensor, replace, rest)), tree_map_only(torch.Tensor, replace, kwargs)


def _fill(tensor: torch.Tensor, number: int) -> torch.Tensor:
    with DisableTorchFunction(), hide_from_modes():
        filled = torch.full_like(tensor, number)
    if labels.label_of(tensor) != CPU:
        labels.put_label(filled, labels.label_of(tensor))
    return filled


def check_call(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse an operator on a GPU after a kernel has stopped: whatever waits at first, then whatever begins a kernel.

    Raises:
        torch.AcceleratorError: as `context.wait_for_kernels`.
    """
    if not is_on_gpu(args, kwargs):
        return
    if _waits(schema, args, kwargs):
        context.wait_for_kernels()
    elif not schema.passive or schema.written:  # else a view, for which nothing runs
        context.check_context()


def is_on_gpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call has to do with a GPU."""
    if getattr(kwargs.get("device"), "type", None) == "cuda":
        return True
    return any(label >= 0 for label in _list_labels(args, kwargs))


def _list_labels(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    return [labels.label_of(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]


def _waits(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if schema.base in WAITING:
        return True
    given = schema.bind_args(args, kwargs)
    if schema.base not in ("_to_copy", "copy") or given.get("non_blocking"):
        return False
    to_cpu = schema.base == "_to_copy" and getattr(given.get("device"), "type", None) == "cpu"
    return to_cpu or CPU in _list_labels(args, kwargs)
