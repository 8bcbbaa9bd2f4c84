"""The operators of torch that are collectives, and where each has its process group and what a rank gives."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from devwidget.capture import torch_internals
from devwidget.capture.recording.event_log import bytes_of
from devwidget.capture.tensors import tensors_in

_C10D = {
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
    "broadcast_": "broadcast",
    "gather_": "gather",
    "monitored_barrier_": "barrier",
    "recv_": "recv",
    "recv_any_source_": "recv",
    "reduce_": "reduce",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "scatter_": "scatter",
    "send": "send",
}
_FUNCTIONAL = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
    "irecv": "recv",
    "isend": "send",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
}
KINDS: Mapping[str, str] = {f"c10d::{name}": kind for name, kind in _C10D.items()} | {
    f"_c10d_functional::{name}": kind for name, kind in _FUNCTIONAL.items()
}
"""Names of operators, and the kind of collective that each is."""

_GROUPS = ("process_group", "group_name")
_GIVEN = ("input", "inputs", "input_tensor", "input_tensors", "input_list", "tensors", "tensor")
_PEERS = ("dst", "src")


class Places(NamedTuple):
    """Which arguments of an operator are its group, what this rank gives, and the other end; -1 for none."""

    group: int
    given: int
    peer: int


@functools.cache
def places_of(func: Any) -> Places:
    """By the names that the schema of an operator gives its arguments."""
    names = [argument.name for argument in func._schema.arguments]
    has_ends = KINDS.get(func._schema.name) in ("send", "recv")
    return Places(_first_place(names, _GROUPS), _first_place(names, _GIVEN), _first_place(names, _PEERS) if has_ends else -1)


def _first_place(names: list[str], wanted: tuple[str, ...]) -> int:
    return next((at for at, name in enumerate(names) if name in wanted), -1)


def group_in(value: Any) -> Any:
    """The process group that an operator is given: by its name, or boxed for C++."""
    if isinstance(value, str):
        return torch_internals.resolve_group(value)
    known: Any = torch_internals.ProcessGroup
    return value if isinstance(value, known) else known.unbox(value)


def given_bytes(func: Any, kind: str, args: tuple[Any, ...]) -> int:
    """What this rank gives; a barrier's tensor is nobody's."""
    return 0 if kind == "barrier" else sum(map(bytes_of, tensors_in(args[places_of(func).given], depth=3)))
