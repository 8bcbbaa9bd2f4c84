"""Weights that a quantized module has packed for its kernel: they are neither parameters nor buffers."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from devwidget.capture.modules import is_module
from devwidget.capture.modules import own as fields_of_module
from devwidget.capture.object_fields import class_name
from devwidget.capture.snapshot.tensor_reader import TensorReader
from devwidget.records.device import CPU
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import TensorFacts


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
