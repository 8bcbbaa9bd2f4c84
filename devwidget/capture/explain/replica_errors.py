"""Errors that DataParallel brought home from a worker thread: without `births on` their text alone, in the message."""

from __future__ import annotations

import dataclasses
import re
from types import CodeType
from typing import Any

from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.data_parallel import faults
from devwidget.capture.explain.error_context import ErrorContext
from devwidget.capture.explain.library_frames import built_at
from devwidget.capture.modules import walk_modules
from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import locals_of, site_of, to_site
from devwidget.capture.source_code.classes import functions_of
from devwidget.capture.source_code.stack import is_library
from devwidget.capture.tensors import tensors_in
from devwidget.records.errors import message
from devwidget.records.fault_details import NoParameters, WrongAxis
from devwidget.records.site import Site
from devwidget.records.syntax import names_in, parsed

CAUGHT = re.compile(r"Caught (\w+) in replica (\d+) on device \d+")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (\S+)$', re.MULTILINE)


def is_from_replica(context: ErrorContext) -> bool:
    """Whether a worker of DataParallel raised it."""
    return CAUGHT.search(message(context.raised)) is not None


def from_replica(context: ErrorContext) -> None:
    """What the text of the worker's traceback and the wrapper's own frame tell."""
    wrapper, caught = _variables_of_wrapper(context).get("self"), CAUGHT.search(message(context.raised))
    if caught is None or not is_a(wrapper, nn.DataParallel):
        return
    site = worker_site(context)
    owners = _owners(wrapper, site) if site is not None else []
    module = context.state.tracker.path_of(owners[0] if len(owners) == 1 else wrapper.module)
    if caught[1] == "StopIteration":
        first = faults.tensor_in(owners[0] if owners else wrapper.module, site)
        detail = NoParameters(first)
        faults.write_fault(context.state, "replica", module, site, caught[1], detail)
    else:
        _blame_cut(context, wrapper, int(caught[2]), module, site)


def _variables_of_wrapper(context: ErrorContext) -> dict[str, Any]:
    frame = context.in_call(nn.DataParallel.forward.__code__)
    if frame is None:
        return {}
    return locals_of(frame)


def _blame_cut(context: ErrorContext, wrapper: Any, replica: int, module: str | None, site: Site | None) -> None:
    """How the inputs were cut, as far as the replica can have failed of it."""
    state, dim, replicas = context.state, wrapper.dim, len(wrapper.device_ids)
    args, kwargs = _inputs_of(context, wrapper)
    whole = list(tensors_in((args, kwargs)))
    odd, batch = faults.odd_lengths(whole, dim)
    text = message(context.raised).strip().splitlines()[-1]
    if "missing" in text and 0 < batch <= replica:
        built = built_at(context, wrapper)
        faults.too_few_samples(state, wrapper, RuntimeError(text), whole, batch, replicas, None, built)
        return
    of_devices = "same device" in text
    tree = parsed(site.text, deep=True) if site is not None else None
    names = names_in(tree) if tree is not None else []
    for name, value in faults.whole_values(wrapper.module, args, kwargs, batch).items():
        if name in names and bool(faults.tensors_of_object(value)) == of_devices:
            faults.not_cut(state, module, site, text, name, value, batch, replicas)
            return
    if odd and not of_devices:
        caller = context.caller_of(context.frames[0])
        operands = tuple(faults.report_cut_input(state, tensor, caller) for tensor in odd)
        detail = WrongAxis(batch, dim)
        faults.write_fault(state, "io", module, site, text, detail, operands)


def _inputs_of(context: ErrorContext, wrapper: nn.Module) -> tuple[Any, Any]:
    """What a wrapper was called with."""
    for frame in context.frames:
        variables = locals_of(frame)
        if frame.f_code is torch_internals.module_call and variables.get("self") is wrapper:
            return variables.get("args", ()), variables.get("kwargs", {})
    return (), {}


def mark_replica(context: ErrorContext) -> None:
    """Say of the faults of a worker that it was one, whose device differs from call to call."""
    faults = context.state.log.faults
    for at, fault in enumerate(faults):
        faults[at] = dataclasses.replace(fault, in_replica=True)


def output_not_joined(context: ErrorContext) -> None:
    """DataParallel could not put together what the replicas returned."""
    variables = _variables_of_wrapper(context)
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


def failure_site(context: ErrorContext) -> Site | None:
    """Where the program failed: in the worker, if it was one."""
    worker = worker_site(context) if is_from_replica(context) else None
    return worker or to_site(site_of(context.user) if context.user is not None else None)
