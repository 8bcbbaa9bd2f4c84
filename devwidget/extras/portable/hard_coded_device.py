"""hard-coded-device: a line that is written for CUDA, where `torch.accelerator` works for any accelerator.

Why: the line fails, or leaves tensors on the CPU, on a machine whose accelerator is not CUDA.
Bad: `model.cuda()`; `torch.zeros(4, device='cuda')`; `torch.cuda.synchronize()`.
Good: `model.to(torch.accelerator.current_accelerator())`; `torch.accelerator.synchronize()`.
Source: https://docs.pytorch.org/docs/stable/accelerator.html
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from devwidget.extras.portable.uses import Use, find_uses
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message, listed
from devwidget.records.site import Site
from devwidget.records.trace import Trace
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, code_of, has_torch
from devwidget.rules.found import Event, Found, SiteInModule, make_finding
from devwidget.rules.registry import Rule

KIND = "hard-coded-device"
_WHY = Message("`torch.accelerator` works for each type of accelerator that PyTorch supports, CUDA included")


Modules = dict[int, str | None]
"""Recorded line -> the module that ran there, None outside of the model."""


def check(trace: Trace) -> Iterator[Finding]:
    """Yield one finding for each line of the user that ran and is written for CUDA."""
    for file, modules in _recorded_lines(trace).items():
        code = code_of(file, tuple(linecache.getlines(file)))
        if code is None:
            continue
        by_line: dict[int, list[Use]] = {}
        for use in find_uses(code, set(modules)):
            by_line.setdefault(use.line, []).append(use)
        for line in sorted(by_line):
            yield make_finding(KIND, "info", _WHY, _make_found(code, line, by_line[line], modules))


RULE = Rule(KIND, check, needs=("operations",))


def _recorded_lines(trace: Trace) -> dict[str, Modules]:
    found: dict[str, Modules] = {}
    events: tuple[Event, ...] = (*trace.faults, *trace.waits, *trace.crossings, *trace.moves, *trace.ops)
    for event in events:
        if event.site is not None and event.site.is_users:
            modules = found.setdefault(event.site.file, {})
            modules[event.site.line] = modules.get(event.site.line) or event.module
    return found


def _make_found(code: Code, line: int, uses: list[Use], modules: Modules) -> Found:
    names = listed(dict.fromkeys(f"`{use.text}`" for use in uses))
    notes = [use.note for use in uses if use.note]
    edit = _make_fix(code, uses)
    if edit is not None:
        version = "{}.{}".format(*max(use.since for use in uses if use.change is not None))
        notes.append(Message("the edit needs torch {version} or later", version=version))
    return Found(
        SiteInModule(Site(code.file, line, code.rows[line - 1].strip()), _find_module(code, line, modules)),
        Message("the line is written for CUDA: {names}", names=names),
        fixes=(edit,),
        notes=dict.fromkeys(notes),
    )


def _find_module(code: Code, line: int, modules: Modules) -> str | None:
    """Return the outermost module that ran in the function around a line."""
    statements = code.statements(line)
    scope = code.scope(statements[0]) if statements else code.tree
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    lines = range(scope.lineno, (scope.end_lineno or scope.lineno) + 1)
    ran = [module for each, module in modules.items() if each in lines]
    return min((module for module in ran if module is not None), key=len, default=None)


def _make_fix(code: Code, uses: list[Use]) -> Fix | None:
    if not has_torch(code):
        return None
    draft = Draft(code)
    for use in uses:
        if use.change is not None:
            use.change(draft)
    return fix(Message("use the accelerator of the machine"), draft)
