"""What a function of a model has from outside, in a closure or a global variable, found without its frame."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import own, walk_modules
from devwidget.capture.object_fields import copy_items, is_a
from devwidget.capture.source_code.classes import cell_contents, functions_of
from devwidget.capture.tensors import is_tensor
from devwidget.records.site import Site
from devwidget.records.syntax import parsed

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def outer_tensors(model: nn.Module, site: Site) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a line names and that its function does not own, of the functions that a model's modules hold."""
    yield from ((name, value) for name, value in outer_values(model, site) if is_tensor(value))


def outer_values(model: nn.Module, site: Site) -> Iterator[tuple[str, Any]]:
    """All values of that kind."""
    tree = parsed(site.text, deep=True)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree is not None else set()
    for function in _functions(model):
        code = function.__code__
        lines = [line for _, _, line in code.co_lines() if line is not None]
        if (code.co_filename, code.co_name) == (site.file, site.function) and min(lines) <= site.line <= max(lines):
            known = {name: dict.get(function.__globals__, name) for name in code.co_names} | _closure_of(function)
            yield from ((name, value) for name, value in known.items() if name in names)


def _closure_of(function: FunctionType) -> dict[str, Any]:
    """The variables of the functions around it that it uses."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: cell_contents(cell) for name, cell in cells}


def _functions(model: nn.Module) -> Iterator[FunctionType]:
    """The methods of its modules, and the functions that they keep as attributes and hooks."""
    for _, part in walk_modules(model):
        fields = own(part)
        tables = [fields.get(name) for name in _HOOKS]
        hooks = [hook for table in tables if is_a(table, dict) for _, hook in copy_items(table)]
        yield from (each for each in (*fields.values(), *hooks) if type(each) is FunctionType)
        yield from functions_of(type(part))
