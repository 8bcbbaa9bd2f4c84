"""Read what a rank holds of its model from tensor metadata, without a sync; values only on request."""

from __future__ import annotations

import math
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.modules import TENSOR_GROUPS, ModuleTree, named_tensors, own, registered_entries
from devwidget.capture.snapshot.module_reader import known_class
from devwidget.capture.snapshot.odd_tensors import is_distributed, is_odd, read_odd
from devwidget.capture.tensors import is_tensor, read_attribute
from devwidget.extras.ranks.records.rank import OWN_DEVICE, Axis, Holding, LocalTensor, RankModel, RankModule
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Role

_Shape = tuple[int, ...]


class RankHoldings(NamedTuple):
    """Everything that one rank holds.

    Attributes:
        model: Record of the model.
        device: Device of most of its bytes.
        axes: Axes of the mesh with the most axes among its tensors.
        coordinates: Coordinates of this rank in that mesh.
        unsharded: Paths of modules whose parameters FSDP has gathered.
        note: What could not be read, and why; "" if nothing.
    """

    model: RankModel
    device: DeviceId | None
    axes: tuple[Axis, ...]
    coordinates: tuple[int, ...]
    unsharded: tuple[str, ...]
    note: str


def read_holdings(root: nn.Module) -> RankHoldings:
    """Return all parameters and buffers of a model, by module."""
    tree = ModuleTree(root)
    sharded, unsharded, note = _fsdp_parameters(tree)
    reader = _HoldingsReader(sharded)
    places: dict[Holding, int] = {}
    sizes: Counter[str] = Counter()
    modules, held = [], []
    for module, path, *_ in tree.visits:
        holding = tuple(reader.read_module(module))
        modules.append(_describe_module(module, path))
        held.append(places.setdefault(holding, len(places)))
        for tensor in holding:
            sizes[tensor.device] += tensor.local_bytes
    device = max(sizes, key=sizes.__getitem__, default="")
    holdings = tuple(_name_own_device(holding, device) for holding in places)
    axes, coordinates = reader.mesh
    model = RankModel(tuple(modules), holdings, tuple(held))
    return RankHoldings(model, DeviceId.parse(device) if device else None, axes, coordinates, unsharded, note)


def _name_own_device(holding: Holding, own_device: str) -> Holding:
    """Return the tensors with the rank's own device replaced by `own`."""
    found = []
    for tensor in holding:
        if tensor.device == own_device:
            tensor = replace(tensor, device=OWN_DEVICE)
        found.append(tensor)
    return tuple(found)


def _describe_module(module: nn.Module, path: str) -> RankModule:
    name, wrapper, defined_at = known_class(module)
    return RankModule(path, name, wrapper, defined_at, own(module).get("training") is True)


class _HoldingsReader:
    """Reads tensors, and keeps the largest mesh."""

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

    def _read_tensor(self, name: str, role: Role, tensor: torch.Tensor) -> LocalTensor:
        kind = type(tensor)
        if is_distributed(tensor):
            return self._read_distributed(name, role, tensor)
        if kind is not nn.Parameter and kind is not torch.Tensor and is_odd(tensor):
            odd = read_odd(tensor)
            note = odd.note
            shape, size = odd.shape, odd.bytes
        else:
            note, shape = "", tuple(read_attribute(tensor, "shape"))
            size = math.prod(shape) * read_attribute(tensor, "itemsize")
        return LocalTensor(
            name, role, shape, shape, _word_dtype(tensor), size, size, _word_device(tensor), "", _requires_grad(tensor), note
        )

    def _read_distributed(self, name: str, role: Role, tensor: Any) -> LocalTensor:
        local, spec = tensor._local_tensor, tensor._spec
        shape, here = tuple(map(int, spec.shape)), tuple(read_attribute(local, "shape"))
        item = read_attribute(local, "itemsize")
        words = self._word_spec(spec)
        sizes = math.prod(shape) * item, math.prod(here) * item
        return LocalTensor(
            name, role, shape, here, _word_dtype(local), *sizes, _word_device(local), words, _requires_grad(tensor), ""
        )

    def _word_spec(self, spec: Any) -> str:
        """Describe a spec. Specs are kept alive so that their ids stay valid."""
        known = self._words.get(id(spec))
        if known is None:
            mesh = spec.device_mesh
            self._note_mesh(mesh)
            known = self._words[id(spec)] = spec, word_placements(spec.placements, name_axes(mesh))
        return known[1]

    def _note_mesh(self, mesh: Any) -> None:
        whole = mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else mesh
        coordinate = whole.get_coordinate()
        if coordinate is not None and whole.ndim > len(self.mesh[0]):
            axes = tuple(Axis(name, int(whole.size(at))) for at, name in enumerate(name_axes(whole)))
            self.mesh = axes, tuple(map(int, coordinate))


def name_axes(mesh: Any) -> tuple[str, ...]:
    """Return names for the axes of a mesh, which may have none."""
    names: tuple[str, ...] | None = mesh.mesh_dim_names
    if names:
        return tuple(names)
    if mesh.ndim == 1:
        return ("rank",)
    return tuple(f"axis {at}" for at in range(mesh.ndim))


def word_placements(placements: tuple[Any, ...], axes: tuple[str, ...]) -> str:
    """Return `Shard(0) on dp, Replicate on tp`; a strided shard says how many parts it has."""
    return ", ".join(f"{_word_kind(placement)} on {axis}" for placement, axis in zip(placements, axes, strict=True))


def _word_kind(placement: Any) -> str:
    factor = getattr(placement, "split_factor", None)
    if factor is not None:
        return f"Shard({placement.dim}, strided {factor})"
    if placement.is_shard():
        return f"Shard({placement.dim})"
    if placement.is_replicate():
        return "Replicate"
    return f"Partial({getattr(placement, 'reduce_op', 'sum')})"


def _word_dtype(tensor: torch.Tensor) -> str:
    return str(read_attribute(tensor, "dtype")).removeprefix("torch.")


def _word_device(tensor: torch.Tensor) -> str:
    return str(read_attribute(tensor, "device"))


def _requires_grad(tensor: torch.Tensor) -> bool:
    return bool(read_attribute(tensor, "requires_grad"))


_Shards = dict[tuple[int, str], torch.Tensor]


def _fsdp_parameters(tree: ModuleTree) -> tuple[_Shards, tuple[str, ...], str]:
    """Return FSDP's shards while it has gathered the full parameters, where it has, and what is unknown."""
    if torch_internals.FSDP not in sys.modules:
        return {}, (), ""
    try:
        return *_read_shards(tree), ""
    except (AttributeError, DevwidgetError) as missing:
        # Its inside differs from torch to torch.
        return {}, (), Message("which parameters FSDP gathered is unknown: {error}", error=missing)


def _read_shards(tree: ModuleTree) -> tuple[_Shards, tuple[str, ...]]:
    shards: _Shards = {}
    unsharded = []
    for module, path, *_ in tree.visits:
        for group in _parameter_groups(module):
            for parameter in group.fsdp_params:
                where = parameter._module_info
                owners = (where.module, *where.shared_modules)
                names = (where.param_name, *where.shared_param_names)
                shards |= {(id(owner), name): parameter.sharded_param for owner, name in zip(owners, names, strict=True)}
            if group._sharded_state.name == "UNSHARDED" and group.post_forward_mesh_info is not None:
                # One that keeps its parameters between forward and backward does so on purpose.
                unsharded.append(path)
    return shards, tuple(unsharded)


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
