"""Collectives in a recording: their operators, the part of torch that called each, and their order."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from types import FrameType
from typing import Any, NamedTuple

from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.recording.event_log import Log, bytes_of
from devwidget.capture.recording.module_tracker import ModuleTracker, module_call
from devwidget.capture.source_code.call_sites import RawSite, raw_site, to_site
from devwidget.capture.source_code.stack import Owner, locals_of, stack
from devwidget.capture.tensors import is_module, tensors_in
from devwidget.records.parallel import POINT_TO_POINT, UNKNOWN, CollectiveCall, ProcessGroup, group_label
from devwidget.records.schema.message import Message

_OPERATORS = {
    "all_gather": "c10d::_allgather_base_ c10d::allgather_ c10d::allgather_coalesced_ c10d::allgather_into_tensor_coalesced_ "
    "_c10d_functional::all_gather_into_tensor _c10d_functional::all_gather_into_tensor_coalesced "
    "_c10d_functional::all_gather_into_tensor_out",
    "all_reduce": "c10d::allreduce_ c10d::allreduce_coalesced_ _c10d_functional::all_reduce _c10d_functional::all_reduce_ "
    "_c10d_functional::all_reduce_coalesced _c10d_functional::all_reduce_coalesced_",
    "all_to_all": "c10d::alltoall_ c10d::alltoall_base_ _c10d_functional::all_to_all_single",
    "barrier": "c10d::barrier c10d::monitored_barrier_",
    "broadcast": "c10d::broadcast_ _c10d_functional::broadcast _c10d_functional::broadcast_",
    "gather": "c10d::gather_",
    "recv": "c10d::recv_ c10d::recv_any_source_ _c10d_functional::irecv",
    "reduce": "c10d::reduce_",
    "reduce_scatter": "c10d::_reduce_scatter_base_ c10d::reduce_scatter_ c10d::reduce_scatter_tensor_coalesced_ "
    "_c10d_functional::reduce_scatter_tensor _c10d_functional::reduce_scatter_tensor_coalesced "
    "_c10d_functional::reduce_scatter_tensor_out",
    "scatter": "c10d::scatter_",
    "send": "c10d::send _c10d_functional::isend",
}
KINDS: dict[str, str] = {}
"""Names of operators, with their kind of collective."""
for _kind, _names in _OPERATORS.items():
    KINDS |= dict.fromkeys(_names.split(), _kind)

_GROUPS = ("process_group", "group_name")
_GIVEN = ("input", "inputs", "input_tensor", "input_tensors", "input_list", "tensors", "tensor")
_PEERS = ("dst", "src")


class Places(NamedTuple):
    """Positions of the group, the tensor and the peer among the arguments of an operator; -1 for none."""

    group: int
    given: int
    peer: int


@functools.cache
def places_of(func: Any) -> Places:
    """Return where an operator takes its group, tensor and peer, from the argument names in its schema."""

    def find_first(names: tuple[str, ...]) -> int:
        return next((at for at, argument in enumerate(func._schema.arguments) if argument.name in names), -1)

    peer = -1
    if KINDS.get(func._schema.name) in ("send", "recv"):
        peer = find_first(_PEERS)
    return Places(find_first(_GROUPS), find_first(_GIVEN), peer)


def given_bytes(func: Any, kind: str, args: tuple[Any, ...]) -> int:
    """Return the bytes that this rank passes; 0 for the tensor of a barrier."""
    if kind == "barrier":
        return 0
    return sum(map(bytes_of, tensors_in(args[places_of(func).given], depth=3)))


_PARTS = {
    "torch.distributed.fsdp": "FSDP",
    "torch.distributed.tensor": "DTensor",
    "torch.nn.parallel.distributed": "DDP",
    "torch.distributed.pipelining": "pipeline",
    "torch.distributed.checkpoint": "checkpoint",
    "torch.distributed.optim": "optimizer",
}
_BACKWARD = "torch.autograd.graph"
"""In backward, the only C++ code behind this call that begins collectives is DDP's reducer."""

_OURS = "devwidget.capture."


def _find_caller(frame: FrameType | None) -> tuple[str, nn.Module | None, RawSite | None]:
    """Return who called an operator that a mode of devwidget handles in this frame: the part of torch, "" for the user's own
    call; the module, None if unknown; the line. Does not read the user's frames."""
    while frame is not None and _qualified_name(frame).startswith(_OURS):
        frame = frame.f_back
    by, module = "", None
    if frame is None or _qualified_name(frame) == _BACKWARD:
        by = "DDP"
    for owner, each in stack(frame):
        if owner is Owner.USER:
            break
        name = _qualified_name(each)
        by = by or next((word for part, word in _PARTS.items() if name.startswith(part)), "")
        module = module or _find_owner(each, name)
    return by, module, raw_site(frame)


def _qualified_name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _find_owner(frame: FrameType, name: str) -> nn.Module | None:
    """Return the module whose hooks and `forward` a frame runs, or whose parameters it gathers and reduces."""
    if frame.f_code is module_call():
        found = locals_of(frame).get("self")
    elif name == torch_internals.FSDP_GROUP:
        of_group: Any = locals_of(frame).get("self")
        found = next(iter(getattr(of_group, "modules", ())), None)
    else:
        return None
    if is_module(found):
        return found
    return None


MOST_CALLS = 20_000
"""Collectives that are kept; more of them would add nothing."""


class Collectives:
    """Collectives that this process called during a recording, in order, with their groups."""

    def __init__(self, log: Log, tracker: ModuleTracker) -> None:
        self._log, self._tracker = log, tracker
        self._places: dict[int, tuple[Any, int]] = {}
        self._groups: list[ProcessGroup] = []
        self._begun: Counter[tuple[int, str, int]] = Counter()
        self._calls: list[tuple[CollectiveCall, RawSite | None]] = []

    def operator_begins(self, func: Any, name: str, args: tuple[Any, ...], frame: FrameType) -> None:
        """Note an operator of a library before it runs, because a collective may never finish."""
        if name not in KINDS:
            return
        if len(self._calls) >= MOST_CALLS:
            reason = Message("the trace contains only the first {count} collectives", count=f"{MOST_CALLS:,}")
            self._log.add_note(Message("{kind}: {reason}", kind=Message("recorder"), reason=reason))
            return
        kind, places, tracker = KINDS[name], places_of(func), self._tracker
        group = self._group_place(torch_internals.group_in(args[places.group]))
        peer = UNKNOWN
        if places.peer >= 0:
            peer = self._groups[group].ranks[args[places.peer]]
        counted = group, kind if kind in POINT_TO_POINT else "", peer
        self._begun[counted] += 1
        by, owner, site = _find_caller(frame)
        path = None
        if owner is not None:
            path = tracker.path_of(owner)
        if path is None:
            path = tracker.module
        call = CollectiveCall(
            kind, group, self._begun[counted], given_bytes(func, kind, args), self._log.number(),
            path, tracker.phase, None, by, peer,
        )  # fmt: skip
        self._calls.append((call, site))

    def _group_place(self, group: Any) -> int:
        """Return the index of a process group. The group is kept alive, because ids are reused after deletion."""
        if id(group) not in self._places:
            self._places[id(group)] = group, len(self._groups)
            name, ranks = str(group.group_name), torch_internals.ranks_of_group(group)
            self._groups.append(ProcessGroup(name, group_label(name, str(group.group_desc)), tuple(map(int, ranks))))
        return self._places[id(group)][1]

    def list_facts(self) -> dict[str, Any]:
        """Return the calls with their lines, and the process groups in order of first use."""
        read_line = functools.cache(to_site)
        calls = [replace(call, site=read_line(site)) for call, site in self._calls]
        return {"collectives": tuple(calls), "groups": tuple(self._groups)}


OBSERVER = Collectives
