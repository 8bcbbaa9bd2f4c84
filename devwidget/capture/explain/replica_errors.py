"""Errors that DataParallel brought home from a worker thread: without `births on` their text alone, in the message."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.data_parallel import faults
from devwidget.capture.explain.error_context import ErrorContext
from devwidget.capture.explain.library_frames import built_at
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.modules import own, walk_modules
from devwidget.capture.object_fields import is_a
from devwidget.capture.recording.descriptions import fault_at, lost_operand, operand_of
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import locals_of, site_of, to_site
from devwidget.capture.source_code.classes import functions_of
from devwidget.capture.source_code.stack import is_library
from devwidget.capture.tensors import is_tensor, tensors_in
from devwidget.records.errors import message
from devwidget.records.site import Site
from devwidget.records.syntax import parsed
from devwidget.records.trace import FaultDetails

CAUGHT = re.compile(r"Caught (\w+) in replica (\d+) on device (\d+)")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (\S+)$', re.MULTILINE)


def is_from_replica(context: ErrorContext) -> bool:
    """Whether a worker of DataParallel raised it."""
    return CAUGHT.search(message(context.raised)) is not None


def from_replica(context: ErrorContext) -> None:
    """What the text of the worker's traceback and the wrapper's own frame tell."""
    frame = context.in_call(nn.DataParallel.forward.__code__)
    if frame is not None:
        wrapper = locals_of(frame).get("self")
    else:
        wrapper = None
    caught = CAUGHT.search(message(context.raised))
    site = worker_site(context)
    if caught is None or not is_a(wrapper, nn.DataParallel):
        return
    owners = _owners(wrapper, site) if site is not None else []
    module = context.state.tracker.path_of(owners[0] if len(owners) == 1 else wrapper.module)
    if caught[1] == "StopIteration":
        first = faults.tensor_in(owners[0] if owners else wrapper.module, site)
        details = FaultDetails(problem="parameters", attribute=first)
        faults.write_fault(context.state, "replica", module, site, caught[1], details)
        return
    _blame_cut(context, wrapper, int(caught[2]), module, site)
    if site is not None and not context.state.log.faults and context.raised is context.error:
        _left_behind(context, torch.device(wrapper.src_device_obj.type, int(caught[3])), owners, site)


def _blame_cut(context: ErrorContext, wrapper: Any, replica: int, module: str | None, site: Site | None) -> None:
    """How the inputs were cut, as far as the replica can have failed of it."""
    state, dim, replicas = context.state, wrapper.dim, len(wrapper.device_ids)
    args, kwargs = _inputs_of(context, wrapper)
    whole = list(tensors_in((args, kwargs)))
    odd, batch = faults.odd_lengths(whole, dim)
    text = _last_line(context)
    if "missing" in text and 0 < batch <= replica:
        built = built_at(context, wrapper)
        faults.too_few_samples(state, wrapper, RuntimeError(text), whole, batch, replicas, None, built)
        return
    of_devices = "same device" in text
    nodes = _nodes(site.text) if site is not None else ()
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    for name, value in faults.whole_values(wrapper.module, args, kwargs, batch).items():
        if name in names and bool(faults.tensors_of_object(value)) == of_devices:
            faults.not_cut(state, module, site, text, name, value, batch, replicas)
            return
    if odd and not of_devices:
        caller = context.caller_of(context.frames[0])
        operands = tuple(faults.report_cut_input(state, tensor, caller) for tensor in odd)
        details = FaultDetails(problem="axis", batch=batch, dim=dim)
        faults.write_fault(state, "io", module, site, text, details, operands)


def _inputs_of(context: ErrorContext, wrapper: nn.Module) -> tuple[Any, Any]:
    """What a wrapper was called with."""
    for frame in context.frames:
        variables = locals_of(frame)
        if frame.f_code is torch_internals.module_call and variables.get("self") is wrapper:
            return variables.get("args", ()), variables.get("kwargs", {})
    return (), {}


def _left_behind(context: ErrorContext, target: torch.device, owners: list[nn.Module], site: Site) -> None:
    """A plain attribute that the failing line reads, and that is on another device than its replica."""
    read = [node for node in _nodes(site.text) if isinstance(node, ast.Attribute)]
    names = [node.attr for node in read if isinstance(node.value, ast.Name) and node.value.id == "self"]
    for part in owners:
        for name in names:
            value = own(part).get(name)
            if is_tensor(value) and value.device != target:
                _write_stray(context, part, f"self.{name}", value, target, site)
                return


def _write_stray(
    context: ErrorContext, owner: nn.Module, name: str, tensor: torch.Tensor, target: torch.device, site: Site
) -> None:
    stray = operand_of(tensor, name, name, stray=True)
    if context.user is not None:
        stray = Names(context.state, context.user).with_birth(stray, tensor, target)
    operands = [stray]
    partner = statements.first_parameter(site.file, site.line)
    if partner:
        operands.append(lost_operand(device_id(target), partner, partner))
    fault = fault_at(
        context.state.tracker,
        "operands",
        "forward",
        site,
        module=context.state.tracker.path_of(owner),
        phase="forward",
        error=_last_line(context),
        operands=tuple(operands),
        target=device_id(target),
    )
    context.state.log.log_fault(fault)


def mark_replica(context: ErrorContext) -> None:
    """Say of the faults of a worker that it was one, whose device differs from call to call."""
    faults = context.state.log.faults
    for at, fault in enumerate(faults):
        faults[at] = dataclasses.replace(fault, details=dataclasses.replace(fault.details, in_replica=True))


def output_not_joined(context: ErrorContext) -> None:
    """DataParallel could not put together what the replicas returned."""
    frame = context.in_call(nn.DataParallel.forward.__code__)
    variables = locals_of(frame) if frame is not None else {}
    wrapper, outputs = variables.get("self"), variables.get("outputs")
    if is_a(wrapper, nn.DataParallel) and is_a(outputs, list) and outputs and is_a(context.error, Exception):
        path = context.state.tracker.path_of(wrapper.module) or ""
        faults.not_joined(context.state, path, wrapper.module, outputs[0], context.error)


def worker_site(context: ErrorContext) -> Site | None:
    """The user's innermost line in the worker."""
    for file, line, name in reversed(_FRAME.findall(message(context.raised))):
        if not is_library(file):
            return Site(file, int(line), statements.statement_text(file, int(line)), name)
    return None


def _owners(wrapper: Any, site: Site) -> list[nn.Module]:
    """Modules whose class has the method that failed: the text does not say which of them was running."""
    found = []
    for _, part in walk_modules(wrapper.module):
        codes = [function.__code__ for function in functions_of(type(part))]
        if any(_is_in(code, site) for code in codes):
            found.append(part)
    return found


def _is_in(code: CodeType, site: Site) -> bool:
    """Whether a line is one of a function."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return (code.co_filename, code.co_name) == (site.file, site.function) and min(lines) <= site.line <= max(lines)


def _last_line(context: ErrorContext) -> str:
    return message(context.raised).strip().splitlines()[-1]


def _nodes(text: str) -> Iterator[ast.AST]:
    tree = parsed(text, deep=True)
    if tree is not None:
        return ast.walk(tree)
    return iter(())


def failure_site(context: ErrorContext) -> Site | None:
    """Where the program failed: in the worker, if it was one."""
    worker = worker_site(context) if is_from_replica(context) else None
    return worker or to_site(site_of(context.user) if context.user is not None else None)
