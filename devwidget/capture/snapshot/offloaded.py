"""Where accelerate keeps the weights of an offloaded module; nothing is loaded to find out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from devwidget.capture.object_fields import dict_of, is_a
from devwidget.capture.snapshot.wrapper_facts import hooks_of
from devwidget.capture.tensors import is_tensor
from devwidget.records.schema.message import Message


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
