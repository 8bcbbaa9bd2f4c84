"""Read what a rank holds of its model from tensor metadata, without a sync; values only on request."""

from __future__ import annotations

import math
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.snapshot.module_reader import known_class
from devwidget.capture.snapshot.odd_tensors import is_distributed, is_odd, read_odd
from devwidget.capture.tensors import TENSOR_GROUPS, ModuleTree, is_tensor, named_tensors, read_attribute, registered_entries
from devwidget.extras.ranks.records.rank import OWN_DEVICE, Axis, Holding, LocalTensor, RankModel, RankModule
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Role

_Shape = tuple[int, ...]


def read_holdings(root: nn.Module) -> dict[str, Any]:
    """Return all parameters and buffers of a model, by module, as fields of a RankReport: the device of most of its bytes, the
    largest mesh among its tensors, where FSDP has gathered parameters, and what could not be read."""
    tree = ModuleTree(root)
    sharded, unsharded, note = _fsdp_parameters(tree)
    reader = _HoldingsReader(sharded)
    places: dict[Holding, int] = {}
    sizes: Counter[str] = Counter()
    modules, held = [], []
    for module, path, *_ in tree.visits:
        holding = tuple(reader.read_module(module))
        modules.append(RankModule(path, *known_class(module)))
        held.append(places.setdefault(holding, len(places)))
        for tensor in holding:
            sizes[tensor.device] += tensor.local_bytes
    device = max(sizes, key=sizes.__getitem__, default="")
    holdings = tuple(_name_own_device(holding, device) for holding in places)
    axes, coordinates = reader.mesh
    return {
        "model": RankModel(tuple(modules), holdings, tuple(held)),
        "device": DeviceId.parse(device) if device else None,
        "axes": axes,
        "coordinates": coordinates,
        "unsharded": unsharded,
        "note": note,
    }


def _name_own_device(holding: Holding, own_device: str) -> Holding:
    found = list(holding)
    for at, tensor in enumerate(holding):
        if tensor.device == own_device:
            found[at] = replace(tensor, device=OWN_DEVICE)
    return tuple(found)


class _HoldingsReader:
    def __init__(self, sharded: dict[tuple[int, str], torch.Tensor]) -> None:
        self._sharded = sharded
        self._words: dict[int, tuple[Any, str]] = {}
        self.mesh: tuple[tuple[Axis, ...], tuple[int, ...]] = (), ()

    def read_module(self, module: nn.Module) -> Iterator[LocalTensor]:
        roles: tuple[Role, Role] = "parameter", "buffer"
        for group, role in zip(TENSOR_GROUPS, roles, strict=True):
            for name, value in registered_entries(module, group):
                tensor = self._sharded.get((id(module), name), value)
                if is_tensor(tensor):
                    yield self._read_tensor(name, role, tensor)

    def _read_tensor(self, name: str, role: Role, tensor: Any) -> LocalTensor:
        local, placement, note = tensor, "", ""
        if is_distributed(tensor):
            local, placement = tensor._local_tensor, self._word_spec(tensor._spec)
        if local is tensor and type(tensor) not in (nn.Parameter, torch.Tensor) and is_odd(tensor):
            odd = read_odd(tensor)
            shapes, sizes, note = (odd.shape, odd.shape), (odd.bytes, odd.bytes), odd.note
        else:
            whole = here = tuple(read_attribute(local, "shape"))
            item = read_attribute(local, "itemsize")
            if local is not tensor:
                whole = tuple(map(int, tensor._spec.shape))
            shapes, sizes = (whole, here), (math.prod(whole) * item, math.prod(here) * item)
        dtype, device = str(read_attribute(local, "dtype")), str(read_attribute(local, "device"))
        requires_grad = bool(read_attribute(tensor, "requires_grad"))
        return LocalTensor(name, role, *shapes, dtype.removeprefix("torch."), *sizes, device, placement, requires_grad, note)

    def _word_spec(self, spec: Any) -> str:
        """Return `Shard(0) on dp, Replicate on tp`. Specs are kept alive so that their ids stay valid."""
        known = self._words.get(id(spec))
        if known is None:
            mesh = spec.device_mesh
            self._note_mesh(mesh)
            # A strided shard says how many parts it has.
            placed = zip(map(_word_kind, spec.placements), _name_axes(mesh), strict=True)
            known = self._words[id(spec)] = spec, ", ".join(f"{kind} on {axis}" for kind, axis in placed)
        return known[1]

    def _note_mesh(self, mesh: Any) -> None:
        whole = mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else mesh
        coordinate = whole.get_coordinate()
        if coordinate is not None and whole.ndim > len(self.mesh[0]):
            axes = tuple(Axis(name, int(whole.size(at))) for at, name in enumerate(_name_axes(whole)))
            self.mesh = axes, tuple(map(int, coordinate))


def _name_axes(mesh: Any) -> tuple[str, ...]:
    if mesh.mesh_dim_names:
        return tuple(mesh.mesh_dim_names)
    if mesh.ndim == 1:
        return ("rank",)
    return tuple(f"axis {at}" for at in range(mesh.ndim))


def _word_kind(placement: Any) -> str:
    factor = getattr(placement, "split_factor", None)
    if factor is not None:
        return f"Shard({placement.dim}, strided {factor})"
    if placement.is_shard():
        return f"Shard({placement.dim})"
    if placement.is_replicate():
        return "Replicate"
    return f"Partial({getattr(placement, 'reduce_op', 'sum')})"


_Shards = dict[tuple[int, str], torch.Tensor]


def _fsdp_parameters(tree: ModuleTree) -> tuple[_Shards, tuple[str, ...], str]:
    """Return FSDP's shards while it has gathered the full parameters, where it has, and what is unknown."""
    shards: _Shards = {}
    unsharded = []
    if torch_internals.FSDP not in sys.modules:
        return {}, (), ""
    try:
        for module, path, *_ in tree.visits:
            for group in _parameter_groups(module):
                shards |= _read_shards(group)
                if group._sharded_state.name == "UNSHARDED" and group.post_forward_mesh_info is not None:
                    # One that keeps its parameters between forward and backward does so on purpose.
                    unsharded.append(path)
    except (AttributeError, DevwidgetError) as missing:
        # Its inside differs from torch to torch.
        return {}, (), Message("which parameters FSDP gathered is unknown: {error}", error=missing)
    return shards, tuple(unsharded), ""


def _read_shards(group: Any) -> Iterator[tuple[tuple[int, str], torch.Tensor]]:
    for parameter in group.fsdp_params:
        where = parameter._module_info
        owners = (where.module, *where.shared_modules)
        names = (where.param_name, *where.shared_param_names)
        for owner, name in zip(owners, names, strict=True):
            yield (id(owner), name), parameter.sharded_param


def _parameter_groups(module: nn.Module) -> tuple[Any, ...]:
    state = torch_internals.fsdp_state_of(module)
    if state is None:
        return ()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        # A single one, or None, in torch 2.11.
        groups = filter(None, [state._fsdp_param_group])
    return tuple(groups)


MOST_ELEMENTS = 4096
"""Elements of one tensor that are read, at equal distances."""


def compute_checksums(model: nn.Module) -> tuple[tuple[str, str], ...]:
    """Return path and checksum of each unsharded parameter. Buffers may differ, such as running means."""
    found = []
    for path, parameter in named_tensors(model, "_parameters"):
        whole = _find_replicated(parameter)
        if whole is not None:
            found.append((path, _compute_checksum(whole)))
    return tuple(found)


def _find_replicated(tensor: Any) -> torch.Tensor | None:
    """Return the tensor of this rank if all ranks have the same one."""
    if is_distributed(tensor):
        if all(each.is_replicate() for each in tensor._spec.placements):
            return tensor._local_tensor  # type: ignore[no-any-return]
        return None
    if type(tensor) in (nn.Parameter, torch.Tensor) and not read_attribute(tensor, "is_meta"):
        return tensor  # type: ignore[no-any-return]
    return None


def _compute_checksum(tensor: torch.Tensor) -> str:
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // MOST_ELEMENTS)
        if flat.numel():
            sampled = flat[::step].contiguous().view(torch.uint8)
        else:
            sampled = flat.to(torch.uint8)
        return f"{zlib.crc32(bytes(sampled.cpu().tolist())):08x}"
