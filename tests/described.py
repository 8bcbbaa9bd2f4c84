"""All that can be seen of an object and of what it holds, as plain values to compare: bytes of tensors, identities, classes."""

from __future__ import annotations

import array
import random
import types
from collections import OrderedDict, deque
from typing import Any

import numpy
import torch
from torch import nn

_PLAIN = (int, float, str, bytes, bool, complex, type(None), torch.dtype, torch.device, type, range)
_IGNORED = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


def described(*values: Any) -> list[Any]:
    """Equal before and after if nothing has changed."""
    return [_Describer().of(value) for value in values]


def switches() -> dict[str, Any]:
    """The switches of torch, and the state of its generators."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "anomaly": torch.is_anomaly_enabled(),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled),
        "mkldnn": torch.backends.mkldnn.enabled,
        "products": torch.get_float32_matmul_precision(),
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "numpy": str(numpy.random.get_state()),
    }


class _Describer:
    def __init__(self) -> None:
        self._met: set[int] = set()

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN or isinstance(value, _IGNORED):
            return value
        if isinstance(value, torch.SymInt):
            return str(value)
        if id(value) in self._met:
            return ("again", id(value))
        self._met.add(id(value))
        return (id(value), kind, self._content(value), self._fields(value))

    def _fields(self, value: Any) -> Any:
        fields = dict(object.__getattribute__(value, "__dict__")) if type(value).__dictoffset__ else {}
        if type(value).__module__.startswith("tests"):
            fields |= {f"class {name}": each for name, each in vars(type(value)).items() if not name.startswith("__")}
        fields = {key: self.of(each) for key, each in fields.items()}
        slots = [name for base in type(value).__mro__ for name in _slots(base) if hasattr(value, name)]
        return list(fields.items()), [(name, self.of(getattr(value, name))) for name in slots]

    def _content(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            with torch._C.DisableTorchFunction(), torch.inference_mode(False):
                return self._tensor(value)
        if isinstance(value, OrderedDict):
            return [(self.of(key), self.of(each)) for key, each in OrderedDict.items(value)]
        if isinstance(value, dict):
            return [(self.of(key), self.of(each)) for key, each in dict.items(value)]
        if isinstance(value, list | tuple | deque):
            kind = list if isinstance(value, list) else tuple if isinstance(value, tuple) else deque
            return [self.of(each) for each in kind.__iter__(value)]
        if isinstance(value, set | frozenset):
            return sorted(id(each) if isinstance(each, torch.Tensor) else hash(each) for each in value)
        if isinstance(value, bytearray | array.array):
            return bytes(value)
        if isinstance(value, numpy.ndarray):
            return value.shape, value.dtype, value.tobytes()
        if isinstance(value, torch.Generator):
            return value.get_state().tolist()
        if isinstance(value, random.Random):
            return value.getstate()
        if isinstance(value, numpy.random.Generator):
            return str(value.bit_generator.state)
        if isinstance(value, numpy.random.RandomState):
            return str(value.get_state())
        if isinstance(value, torch.jit.ScriptModule):
            return [(name, self.of(each)) for name, each in [*value.named_parameters(), *value.named_buffers()]]
        return None

    def _tensor(self, value: torch.Tensor) -> Any:
        facts = (value.dtype, value.layout, value.requires_grad, value.is_leaf, str(value.device))
        grad = self.of(value.grad) if value.is_leaf else None
        hooks = self.of(value._backward_hooks), self.of(value._post_accumulate_grad_hooks)
        return facts, self._values(value), grad, hooks

    def _values(self, value: torch.Tensor) -> Any:
        if nn.parameter.is_lazy(value):
            return "lazy"
        if value.layout is torch.sparse_coo:
            return tuple(value.shape), value._indices().tolist(), value._values().tolist()
        if value.layout is torch.sparse_csr:
            return tuple(value.shape), value.crow_indices().tolist(), value.values().tolist()
        if value.layout is torch.jagged:
            return "its fields say it all"
        if value.is_nested:
            return [each.tolist() for each in value.detach().unbind()]
        storage = value.untyped_storage()
        where = (tuple(value.shape), value.stride(), value.storage_offset(), storage._cdata, storage.nbytes())
        if vars(torch._C.TensorBase)["is_meta"].__get__(value):
            return where, None
        return where, bytes(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).tolist())


def _slots(base: type) -> list[str]:
    names = vars(base).get("__slots__", ())
    return [name for name in ((names,) if isinstance(names, str) else names) if name not in ("__dict__", "__weakref__")]


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two descriptions differ, each as a line."""
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = list(before.items()), list(after.items())
    nested = isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after)
    if nested and not _named(before):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for place, (a, b) in pairs for line in differences(a, b, f"{path}[{place}]")]
    if nested and before[0] == after[0]:
        return differences(before[1], after[1], f"{path}.{before[0]}")
    return [] if _equal(before, after) else [f"{path}: {str(before)[:200]} became {str(after)[:200]}"]


def _named(pair: Any) -> bool:
    return len(pair) == 2 and isinstance(pair[0], str)


def _equal(before: Any, after: Any) -> bool:
    return before is after or (type(before) is type(after) and bool(before == after))
