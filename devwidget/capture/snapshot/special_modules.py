"""Modules of which one instance is special: replicated, offloaded by accelerate, compiled in place, packed as a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import torch

from devwidget.capture.modules import is_module
from devwidget.capture.modules import own as fields_of_module
from devwidget.capture.object_fields import class_name, dict_of, is_a, items_of
from devwidget.capture.snapshot.tensor_reader import TensorReader, join_notes
from devwidget.capture.snapshot.wrapper_facts import format_counts, hook_notes, hooks_of
from devwidget.capture.tensors import is_tensor
from devwidget.records.device import CPU
from devwidget.records.schema.message import Message, in_row
from devwidget.records.snapshot import TensorFacts


def kept_tensor(own: dict[str, Any], name: str) -> torch.Tensor | None:
    """The weight itself if it is offloaded to CPU memory."""
    for entry in _weight_entries(own, name):
        if is_tensor(entry):
            return entry
    return None


def kept_note(own: dict[str, Any], name: str) -> str:
    """`offloaded to cpu`, `offloaded to disk`, or "" if accelerate does not keep this weight."""
    for entry in _weight_entries(own, name):
        return Message("offloaded to cpu") if is_tensor(entry) else Message("offloaded to disk")
    return ""


def _weight_entries(own: dict[str, Any], name: str) -> list[Any]:
    """What the weight maps of the hooks have under a name: a tensor in memory, or a description of a file."""
    maps = [dict_of(hook).get("weights_map") for hook in hooks_of(own)]
    found = [_look_up(weights, name) for weights in maps if weights is not None]
    return [entry for entry in found if entry is not None]


def _look_up(weights: Any, name: str) -> Any:
    """One entry without indexing the loader, which would read the file."""
    while hasattr(weights, "dataset") and hasattr(weights, "prefix"):
        name, weights = f"{weights.prefix}{name}", weights.dataset
    for known in (weights, getattr(weights, "state_dict", None), getattr(weights, "index", None)):
        if is_a(known, dict) and name in known:
            return known[name]
    return _on_disk(weights, name)


def _on_disk(weights: Any, name: str) -> Any:
    keys = getattr(weights, "all_keys", ())
    return {} if isinstance(weights, Mapping) and name in keys else None


def packed_weight(own: dict[str, Any], reader: TensorReader) -> TensorFacts | None:
    """The packed weight of a module with this `__dict__`, None if it has none.

    Its size follows from the module's own figures: unpacking would copy the weight. One byte per element.
    """
    children = own.get("_modules")
    inner = children.get("_packed_params") if type(children) is dict else None  # those of a scripted module are no dict
    packed = _is_packed(own) or (is_module(inner) and _is_packed(fields_of_module(inner)))
    shape = _packed_shape(own) if packed else None
    if shape is None:
        return None
    size = prod(shape)
    note, dtype = Message("packed for the quantized kernel"), reader.dtype_word(own.get("dtype", torch.qint8))
    return TensorFacts("weight", "parameter", shape, dtype, CPU, size, reader.storages.new_number(), size, note=note)


def _is_packed(own: Any) -> bool:
    return "ScriptObject" in (class_name(type(own.get(name))) for name in ("_packed_params", "_packed_weight"))


def _packed_shape(own: dict[str, Any]) -> tuple[int, ...] | None:
    if "in_features" in own and "out_features" in own:
        return own["out_features"], own["in_features"]
    if "num_embeddings" in own and "embedding_dim" in own:
        return own["num_embeddings"], own["embedding_dim"]
    if "in_channels" in own and "kernel_size" in own and "out_channels" in own:
        return own["out_channels"], own["in_channels"] // own.get("groups", 1), *own["kernel_size"]
    return None


SPECIAL = frozenset({"_hf_hook", "_is_replica", "_compiled_call_impl", "hf_device_map", "_packed_params"})
"""Attributes that only such modules have."""


class Special(NamedTuple):
    """What was done to one module: a word for it, notes, and the fields of that name of `ModuleFacts`."""

    word: str
    notes: list[str]
    runs: str
    device_map: str


def read_special(own: dict[str, Any]) -> Special:
    """What was done to this one module; `own` is its `__dict__`."""
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
    if "hf_device_map" in own:
        devices = format_counts(place for _, place in items_of(own["hf_device_map"]) or ())
        notes.append(Message("device map: {devices}", devices=devices))
    return Special(word, notes, runs, devices)


def special_tensors(path: str, own: dict[str, Any], read: list[TensorFacts], reader: TensorReader) -> list[TensorFacts]:
    """The tensors of the module where they really are."""
    if own.get("_is_replica") is True:
        kept = items_of(own.get("_former_parameters")) or ()
        read = [reader.read_tensor(path, name, "parameter", tensor) for name, tensor in kept if is_tensor(tensor)] + read
    if "_hf_hook" in own:
        read = [_offloaded_facts(own, path, facts, reader) if facts.device.kind == "meta" else facts for facts in read]
    packed = packed_weight(own, reader)
    return read if packed is None else [packed, *read]


def _offloaded_facts(own: dict[str, Any], path: str, facts: TensorFacts, reader: TensorReader) -> TensorFacts:
    """A weight that shows as meta, with the facts of the copy that accelerate keeps."""
    note, kept = kept_note(own, facts.name), kept_tensor(own, facts.name)
    if is_tensor(kept):
        read = reader.read_tensor(path, facts.name, facts.role, kept, note)
        return replace(read, requires_grad=facts.requires_grad, kept=note)
    return replace(facts, note=join_notes(note, facts.note), kept=note)
