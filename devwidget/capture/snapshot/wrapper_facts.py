"""What wraps a module: DataParallel, DDP, FSDP, compile, script, parametrizations, accelerate; read from plain attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.devices import kind_here
from devwidget.capture.object_fields import (
    class_name,
    dict_of,
    format_value,
    is_a,
    items_of,
    module_name,
    mro_of,
    parts_of,
    qualified_name,
)
from devwidget.capture.snapshot.tensor_reader import TensorReader, join_notes
from devwidget.capture.tensors import is_module, is_tensor, registered_entries
from devwidget.capture.tensors import own as fields_of_module
from devwidget.records.schema.message import Message, in_row, listed
from devwidget.records.snapshot import TensorFacts

Note = Callable[[dict[str, Any]], str]


def _wrap_nothing(own: dict[str, Any]) -> str:
    return ""


class Wrapping(NamedTuple):
    """A class of wrappers.

    Attributes:
        word: its displayed name.
        note: its settings, from the `__dict__` of the wrapper.
        hides: its plain attributes repeat the tensors of what it wraps, so they are not searched.
    """

    word: str
    note: Note = _wrap_nothing
    hides: bool = True


def _data_parallel(own: dict[str, Any]) -> str:
    if not own.get("device_ids"):
        return Message("no accelerator was available: it calls the module directly")
    kind = getattr(own.get("src_device_obj"), "type", None) or kind_here()
    facts = {"device_ids": str(list(own["device_ids"])), "device": f"{kind}:{own.get('output_device')}"}
    return Message("device_ids {device_ids}, gathers on {device}", **facts)


def _read_distributed(own: dict[str, Any]) -> str:
    group: Any = own.get("process_group")
    ids = own.get("device_ids")
    known = hasattr(group, "rank") and hasattr(group, "size")
    ranks = Message("rank {rank} of {world_size}", rank=group.rank(), world_size=group.size()) if known else ""
    return in_row((ranks, f"device_ids {list(ids)}" if ids else ""))


def _read_parametrized(own: dict[str, Any]) -> str:
    lists = own["_modules"].get("parametrizations")
    if is_module(lists):
        pairs = [(name, registered_entries(steps, "_modules")) for name, steps in registered_entries(lists, "_modules")]
    else:
        pairs = []
    return in_row(
        Message("{name} through {steps}", name=name, steps=listed(class_name(type(step)) for _, step in steps))
        for name, steps in pairs
    )


_WRAPPINGS = {
    "torch.nn.parallel.data_parallel.DataParallel": Wrapping("DataParallel", _data_parallel),
    "torch.nn.parallel.distributed.DistributedDataParallel": Wrapping("DistributedDataParallel", _read_distributed),
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": Wrapping("FSDP"),
    "torch.distributed.fsdp.FSDPModule": Wrapping("FSDP2", hides=False),
    torch_internals.COMPILED_MODULE: Wrapping("compiled"),
    torch_internals.SCRIPTED_MODULE: Wrapping("scripted"),
    "torch.fx.graph_module.GraphModule": Wrapping("fx graph", hides=False),
}
_PARAMETRIZED = Wrapping("parametrized", _read_parametrized, hides=False)
_QUANTIZED = Wrapping("quantized", hides=False)
_PLAIN = Wrapping("", hides=False)


def find_wrapping(kind: type) -> Wrapping:
    """Return how instances of a class wrap others; an empty word for ordinary modules."""
    for base in mro_of(kind):
        found = _WRAPPINGS.get(f"{module_name(base)}.{qualified_name(base)}")
        if found is not None:
            return found
    if module_name(kind).startswith("torch.ao.nn.quantized"):
        return _QUANTIZED
    if is_parametrized(kind):
        return _PARAMETRIZED
    return _PLAIN


def is_parametrized(kind: type) -> bool:
    """Return whether `torch.nn.utils.parametrize` generated the class."""
    made = class_name(kind).startswith("Parametrized") and module_name(kind) == nn.utils.parametrize.__name__
    return made and len(_bases(kind)) == 1


def written_class(kind: type) -> type:
    """Return the class as written, if torch replaced it by a generated one (FSDP2, parametrizations)."""
    bases = _bases(kind)
    generated = is_parametrized(kind) or any(class_name(base) == "FSDPModule" for base in bases)
    if not generated:
        return kind
    return next(base for base in bases if class_name(base) != "FSDPModule")


_bases: Callable[[type], tuple[type, ...]] = vars(type)["__bases__"].__get__


def displayed_class_name(module: nn.Module) -> str:
    """Return the name of the class as written, also for scripted modules."""
    script: Any = fields_of_module(module).get("_c")
    if module_name(type(script)).partition(".")[0] == "torch":
        return str(script._type().name())
    return class_name(written_class(type(module)))


def hooks_of(own: dict[str, Any]) -> list[Any]:
    """Return the accelerate hooks of a module, sequences opened; [None] without any."""
    hook = own.get("_hf_hook")
    return list(parts_of(dict_of(hook).get("hooks", [hook])))


def hook_notes(hook: Any) -> tuple[str, str]:
    """Return where an accelerate hook runs its module, and that the weights are away between calls; "" if not."""
    fields = dict_of(hook)
    device = fields.get("execution_device")
    if type(device) is int:
        where = f"{kind_here()}:{device}"
    else:
        where = format_value(device)
    if device is None:
        runs = ""
    else:
        runs = Message("runs on {device}", device=where)
    return runs, Message("offloaded between calls") if fields.get("offload") is True else ""


def group_of(own: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the group with which hooks of diffusers move a module; empty without one.

    Source: `GroupOffloadingHook` of diffusers, which a `HookRegistry` in `_diffusers_hook` keeps.
    """
    for _, hook in items_of(dict_of(own.get("_diffusers_hook")).get("hooks")) or ():
        group = dict_of(hook).get("group")
        if group is not None:
            return dict_of(group)
    return {}


def format_counts(values: Iterable[object]) -> str:
    """Return `cuda:0 x12, cpu x3`."""
    counts: dict[str, int] = {}
    for value in map(format_value, values):
        counts[value] = counts.get(value, 0) + 1
    return ", ".join(f"{name} x{count}" for name, count in counts.items())


# Modules whose instance is special: replicated, offloaded by accelerate, compiled in place.


def _kept_weight(own: dict[str, Any], name: str) -> tuple[Any, str]:
    """Return accelerate's copy of a weight, a tensor in memory or a description of a file, and a note; "" if there is none."""
    for hook in hooks_of(own):
        weights = dict_of(hook).get("weights_map")
        entry = None if weights is None else _look_up(weights, name)
        if is_tensor(entry):
            return entry, Message("offloaded to cpu")
        if entry is not None:
            return entry, Message("offloaded to disk")
    return None, ""


def _look_up(weights: Any, name: str) -> Any:
    """Return one entry without indexing the loader, which would read the file."""
    while hasattr(weights, "dataset") and hasattr(weights, "prefix"):
        name, weights = f"{weights.prefix}{name}", weights.dataset
    for known in (weights, getattr(weights, "state_dict", None), getattr(weights, "index", None)):
        if is_a(known, dict) and name in known:
            return known[name]
    return _on_disk(weights, name)


def _on_disk(weights: Any, name: str) -> Any:
    keys = getattr(weights, "all_keys", ())
    if isinstance(weights, Mapping) and name in keys:
        return {}
    return None


SPECIAL = frozenset({"_hf_hook", "_is_replica", "_compiled_call_impl", "hf_device_map", "_diffusers_hook"})
"""Attributes that only such modules have."""


class Special(NamedTuple):
    """What was done to one module: its name, notes, and the `ModuleFacts` fields of that name."""

    word: str
    notes: list[str]
    runs: str
    device_map: str


def read_special(own: dict[str, Any]) -> Special:
    """Return what was done to this module; `own` is its `__dict__`."""
    word = runs = devices = ""
    notes: list[str] = []
    if own.get("_compiled_call_impl") is not None:
        word, notes = "compiled", [Message("compiled in place")]
    if own.get("_is_replica") is True:
        word = "replica"
    if "_hf_hook" in own:
        word = "accelerate"
        hooks = [note for hook in hooks_of(own) for note in hook_notes(hook) if note]
        runs = hooks[0] if hooks else ""
        notes.append(in_row(hooks))
    group = group_of(own)
    if group:
        word = "diffusers"
        runs = Message("runs on {device}", device=format_value(group.get("onload_device")))
        notes.append(in_row((runs, Message("offloaded between calls"))))
    if "hf_device_map" in own:
        devices = format_counts(place for _, place in items_of(own["hf_device_map"]) or ())
        notes.append(Message("device map: {devices}", devices=devices))
    return Special(word, notes, runs, devices)


def special_tensors(path: str, own: dict[str, Any], read: list[TensorFacts], reader: TensorReader) -> list[TensorFacts]:
    """Return the tensors of the module with their real location."""
    if own.get("_is_replica") is True:
        kept = items_of(own.get("_former_parameters")) or ()
        read = [reader.read_tensor(path, name, "parameter", tensor) for name, tensor in kept if is_tensor(tensor)] + read
    if "_hf_hook" in own:
        read = [_offloaded_facts(own, path, facts, reader) if facts.device.kind == "meta" else facts for facts in read]
    return read


def _offloaded_facts(own: dict[str, Any], path: str, facts: TensorFacts, reader: TensorReader) -> TensorFacts:
    """Return the facts of a weight that shows as meta, from the copy that accelerate keeps."""
    kept, note = _kept_weight(own, facts.name)
    if is_tensor(kept):
        read = reader.read_tensor(path, facts.name, facts.role, kept, note)
        return replace(read, requires_grad=facts.requires_grad, kept=note)
    return replace(facts, note=join_notes(note, facts.note), kept=note)
