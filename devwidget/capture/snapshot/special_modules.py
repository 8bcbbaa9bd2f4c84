"""Modules of which one instance is special: replicated, offloaded, compiled in place, packed for a quantized kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from devwidget.capture.object_fields import items_of
from devwidget.capture.snapshot.offloaded import kept_note, kept_tensor
from devwidget.capture.snapshot.packed import packed_weight
from devwidget.capture.snapshot.tensor_reader import TensorReader, join
from devwidget.capture.snapshot.wrapper_facts import counted, hook_note, hooks_of
from devwidget.capture.tensors import is_tensor
from devwidget.records.schema.message import Message
from devwidget.records.tensor import TensorFacts

SPECIAL = frozenset({"_hf_hook", "_is_replica", "_compiled_call_impl", "hf_device_map", "_packed_params"})
"""Attributes that only such modules have."""


def special_notes(own: dict[str, Any]) -> tuple[str, list[str]]:
    """Word and notes for what was done to this one module; `own` is its `__dict__`."""
    word = ""
    notes: list[str] = []
    if own.get("_compiled_call_impl") is not None:
        word, notes = "compiled", [Message("compiled in place")]
    if own.get("_is_replica") is True:
        word = "replica"
    if "_hf_hook" in own:
        word = "accelerate"
        notes += [note for hook in hooks_of(own) if (note := hook_note(hook))]
    if "hf_device_map" in own:
        devices = counted(place for _, place in items_of(own["hf_device_map"]) or ())
        notes.append(Message("device map: {devices}", devices=devices))
    return word, notes


def special_tensors(path: str, own: dict[str, Any], read: list[TensorFacts], reader: TensorReader) -> list[TensorFacts]:
    """The tensors of the module where they really are."""
    if own.get("_is_replica") is True:
        kept = items_of(own.get("_former_parameters")) or ()
        read = [reader.read(path, name, "parameter", tensor) for name, tensor in kept if is_tensor(tensor)] + read
    if "_hf_hook" in own:
        read = [_offloaded(own, path, facts, reader) if facts.device.kind == "meta" else facts for facts in read]
    packed = packed_weight(own, reader)
    return read if packed is None else [packed, *read]


def _offloaded(own: dict[str, Any], path: str, facts: TensorFacts, reader: TensorReader) -> TensorFacts:
    """A weight that shows as meta, with the facts of the copy that accelerate keeps."""
    note, kept = kept_note(own, facts.name), kept_tensor(own, facts.name)
    if is_tensor(kept):
        return replace(reader.read(path, facts.name, facts.role, kept, note), requires_grad=facts.requires_grad)
    return replace(facts, note=join(note, facts.note))
