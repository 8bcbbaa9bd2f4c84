"""Changeable: what code that has not run yet could change for good, judged by what it names."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devwidget.capture.object_fields import is_exactly, module_name
from devwidget.capture.source_code.call_sites import is_library
from devwidget.capture.tensors import is_tensor

_KNOWN = frozenset(
    "torch torchvision torchaudio transformers timm einops numpy math cmath builtins typing typing_extensions collections "
    "functools itertools operator dataclasses enum abc copy contextlib warnings logging random time string re types inspect "
    "numbers statistics fractions decimal bisect heapq __future__".split()
)
"""Libraries whose functions compute, or whose state a step has put back; `torch.save` and its like are refused as they run."""
_ASKS = frozenset({"input", "breakpoint", "exec", "eval", "exit", "quit", "help"})
_SCALAR_KINDS = (torch.device, torch.dtype, torch.layout, torch.memory_format, torch.Size, types.GenericAlias, range, slice)
_PLAIN = (*_SCALAR_KINDS, tuple, frozenset, property, types.CellType, types.UnionType)
_FIXED = ("typing", "logging")
_CALLABLE = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)
_FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_FOLLOWED = (types.MethodType, functools.partial, classmethod, staticmethod)


def is_changeable(value: Any, file: Callable[[types.ModuleType], str], is_kept: Callable[[Any], bool]) -> bool:
    """Whether code that names a value could change it, or through it something outside, which nobody puts back.

    Args:
        value: what a name stands for; what it holds is judged by itself.
        file: where a module is from.
        is_kept: whether a value is put back; of a function that is what it holds, not what it does.
    """
    kind = type(value)
    if kind is types.FunctionType:
        return not _is_known(value.__module__) if is_library(value.__code__.co_filename) else _reaches_out(value.__code__)
    if kind is types.ModuleType:
        return is_library(file(value)) and not _is_known(value.__name__)
    if issubclass(kind, type) or is_tensor(value):
        return False  # the functions of a class are followed; a tensor is saved when it is first written
    is_fixed = is_exactly(value, (*_PLAIN, *_CALLABLE, *_FIELDS, *_FOLLOWED)) or module_name(kind) in _FIXED
    return not is_fixed and not is_kept(value)


def _is_known(module: Any) -> bool:
    return module is None or (type(module) is str and module.partition(".")[0] in _KNOWN)


def _reaches_out(code: types.CodeType) -> bool:
    """Whether some code binds a name outside of itself, imports a library that is not known, or asks somebody."""
    for each in dis.get_instructions(code):
        name, named = each.opname, each.argval
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL") or (name == "STORE_DEREF" and named in code.co_freevars):
            return True
        if name in ("LOAD_GLOBAL", "LOAD_NAME") and named in _ASKS:
            return True
        if name == "IMPORT_NAME" and not _is_known(named):
            return True
    return any(_reaches_out(inner) for inner in _inner_codes(code))


def _inner_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    return (each for each in code.co_consts if type(each) is types.CodeType)
