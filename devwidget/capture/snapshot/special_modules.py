"""Modules whose instance is special: replicated, offloaded by accelerate, compiled in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from devwidget.capture.object_fields import dict_of, format_value, is_a, items_of
from devwidget.capture.snapshot.tensor_reader import TensorReader, join_notes
from devwidget.capture.snapshot.wrapper_facts import format_counts, group_of, hook_notes, hooks_of
from devwidget.capture.tensors import is_tensor
from devwidget.records.schema.message import Message, in_row
from devwidget.records.snapshot import TensorFacts


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
