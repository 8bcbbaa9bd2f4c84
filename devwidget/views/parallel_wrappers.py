"""What spreads a model over devices or processes, read from a snapshot: wrappers, shards, offloading hooks, device maps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.schema.message import in_row
from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts
from devwidget.views.sums import group_by, values_once

WRAPPERS = ("DataParallel", "DistributedDataParallel")
SHARDS = ("FSDP2", "FSDP")
HOOKS = ("accelerate", "diffusers")


@dataclass(frozen=True, slots=True)
class Share:
    """What one part holds.

    Attributes:
        name: path of a module, or where modules run.
        parts: number of modules, or of tensors.
        here: bytes in this process, by device.
        whole: bytes of all shards, and of what is on disk.
        note: how it is cut, or where it is kept.
    """

    name: str
    parts: int
    here: tuple[tuple[DeviceId, int], ...]
    whole: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """One way in which the model is spread.

    Attributes:
        kind: a wrapper, `FSDP2`, `FSDP`, `tensor parallel`, `accelerate`, `diffusers` or `device map`.
        path: the first module that it applies to.
        note: its settings.
        keys: parameters and buffers below a wrapper, whose names begin with its path and `module.`.
        shares: one for each part.
    """

    kind: str
    path: str
    note: str
    keys: int
    shares: tuple[Share, ...]


def find_spreads(snapshot: Snapshot) -> tuple[Spread, ...]:
    """Every way in which the model is spread, the outermost first."""
    looks = (_find_wrappers, _find_shards, _find_tensor_parallel, _find_offloaded, _find_device_maps)
    spreads: list[Spread] = []
    for look in looks:
        spreads += look(snapshot.modules)
    return tuple(spreads)


def whole_bytes(tensor: TensorFacts) -> int:
    """Bytes of a tensor with all its shards, wherever they are."""
    if tensor.shape is None:
        return 0
    bits = re.search(r"\d{1,4}", tensor.dtype)
    return math.prod(tensor.shape) * int(bits[0] if bits else 8) // 8


def is_sharded(tensor: TensorFacts) -> bool:
    """The tensor is a DTensor: a shard or a copy on several ranks."""
    return bool(tensor.placements)


def _registered(modules: Iterable[ModuleFacts]) -> Iterator[TensorFacts]:
    """The parameters and buffers of modules."""
    for module in modules:
        for tensor in module.tensors:
            if tensor.role in ("parameter", "buffer"):
                yield tensor


def _modules_below(modules: Iterable[ModuleFacts], path: str) -> list[ModuleFacts]:
    if not path:
        return list(modules)
    return [module for module in modules if f"{module.path}.".startswith(f"{path}.")]


def _make_share(name: str, modules: Sequence[ModuleFacts], note: str = "") -> Share:
    here: dict[DeviceId, int] = {}
    whole = 0
    for tensor in _registered(modules):
        if tensor.tied_to:
            continue
        whole += whole_bytes(tensor)
        if tensor.bytes:
            here[tensor.device] = here.get(tensor.device, 0) + tensor.bytes
    return Share(name, len(modules), tuple(sorted(here.items())), whole, note)


def _find_wrappers(modules: tuple[ModuleFacts, ...]) -> Iterator[Spread]:
    for module in modules:
        if module.wrapper in WRAPPERS:
            inside = _modules_below(modules, module.path)
            keys = sum(1 for _ in _registered(inside))
            yield Spread(module.wrapper, module.path, module.note, keys, (_make_share(module.path, inside),))


def _find_shards(modules: tuple[ModuleFacts, ...]) -> Iterator[Spread]:
    for kind in SHARDS:
        units = _find_units(modules, kind)
        if units:
            shares = tuple(_make_share(own[0].path, own, _cut_of(own)) for own in units)
            yield Spread(kind, units[0][0].path, units[0][0].note, 0, shares)


def _find_units(modules: tuple[ModuleFacts, ...], kind: str) -> list[list[ModuleFacts]]:
    """Return the modules with such a wrapper, each followed by the modules below it that have no inner wrapper."""
    found: dict[int, list[ModuleFacts]] = {}
    nearest: list[int] = []
    for place, module in enumerate(modules):
        unit = -1
        if module.wrapper == kind:
            unit = place
        elif module.parent >= 0:
            unit = nearest[module.parent]
        nearest.append(unit)
        found.setdefault(unit, []).append(module)
    found.pop(-1, None)
    return list(found.values())


def _cut_of(modules: Iterable[ModuleFacts]) -> str:
    """How the first DTensor is placed; "" without any."""
    for module in modules:
        for tensor in module.tensors:
            if is_sharded(tensor):
                return tensor.placements
    return ""


def _find_tensor_parallel(modules: tuple[ModuleFacts, ...]) -> Iterator[Spread]:
    if any(module.wrapper in SHARDS for module in modules):
        return
    cut = [module for module in modules if _cut_of([module])]
    if cut:
        shares = tuple(_make_share(each.path, [each], _cut_of([each])) for each in cut)
        yield Spread("tensor parallel", cut[0].path, "", 0, shares)


def _find_offloaded(modules: tuple[ModuleFacts, ...]) -> Iterator[Spread]:
    for kind in HOOKS:
        wrapped = [module for module in modules if module.wrapper == kind]
        hooked = [module for module in wrapped if any(_registered([module]))]
        if hooked:
            shares = tuple(_make_share(note, group) for note, group in group_by(hooked, _hook_words).items())
            yield Spread(kind, hooked[0].path, "", 0, shares)


def _hook_words(module: ModuleFacts) -> str:
    """Where a hook runs its module, and where the weights are meanwhile."""
    return in_row((module.runs, *filter(None, values_once(module.tensors, "kept"))))


def _find_device_maps(modules: tuple[ModuleFacts, ...]) -> Iterator[Spread]:
    for module in modules:
        if module.device_map:
            shares = (_make_share(module.path, _modules_below(modules, module.path)),)
            yield Spread("device map", module.path, module.device_map, 0, shares)
