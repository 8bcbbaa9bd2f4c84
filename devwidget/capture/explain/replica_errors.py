"""Errors that DataParallel brought home from a worker thread: the frames there are gone, their text is in the message."""

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
from devwidget.capture.explain.library_frames import built_at, described
from devwidget.capture.explain.outer_tensors import outer_tensors, outer_values
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.modules import own, registered_entries, walk_modules
from devwidget.capture.object_fields import is_a
from devwidget.capture.recording.descriptions import fault_at, lost_operand
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import is_library, locals_of, site_of, to_site
from devwidget.capture.source_code.classes import functions_of
from devwidget.capture.source_code.factories import names_of_factories
from devwidget.capture.tensors import is_tensor, tensors_in
from devwidget.records.device import CPU, DEVICE_NAME, PLACING_METHODS, DeviceId
from devwidget.records.errors import message
from devwidget.records.site import Site
from devwidget.records.syntax import parsed, parsed_statement
from devwidget.records.trace import FaultDetails, Operand

CAUGHT = re.compile(r"Caught (\w+) in replica (\d+) on device (\d+)")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (\S+)$', re.MULTILINE)

_PLACES = re.compile(rf"\bdevice\b|\.(?:{'|'.join(sorted(PLACING_METHODS))})\(")
MOST_ASSIGNMENTS = 4
"""How many assignments back a value is followed."""


def from_replica(context: ErrorContext) -> None:
    """What the text of the worker's traceback and the wrapper's own frame tell."""
    frame = context.in_call(nn.DataParallel.forward.__code__)
    caught = CAUGHT.search(message(context.error))
    wrapper = locals_of(frame).get("self") if frame is not None else None
    if frame is None or caught is None or not is_a(wrapper, nn.DataParallel):
        return
    site = worker_site(context)
    owners = _owners(wrapper, site)
    module = context.state.tracker.path_of(owners[0] if len(owners) == 1 else wrapper.module)
    if caught[1] == "StopIteration":
        first = faults.tensor_in(owners[0] if owners else wrapper.module, site)
        details = FaultDetails(problem="parameters", attribute=first)
        faults.write_fault(context.state, "replica", module, site, caught[1], details)
        return
    if _too_few(context, wrapper, int(caught[2])):
        return
    target = torch.device(wrapper.src_device_obj.type, int(caught[3]))
    if _not_cut(context, wrapper, module, site):
        return
    known = _wrong_cut(context, wrapper, module, site) or _left_behind(context, target, owners, site)
    if not known and not _from_outside(context, wrapper, target, module, site):
        _wrong_device(context, device_id(target), module, site, wrapper.module)


def _too_few(context: ErrorContext, wrapper: Any, replica: int) -> bool:
    """A replica that got no tensor, because there are fewer samples than GPUs."""
    given = next((locals_of(f) for f in reversed(context.frames) if f.f_code is torch_internals.module_call), {})
    whole = list(tensors_in((given.get("args"), given.get("kwargs"))))
    samples = max((tensor.shape[wrapper.dim] for tensor in whole if tensor.dim() > wrapper.dim), default=0)
    if "missing" not in message(context.error) or not 0 < samples <= replica:
        return False
    built = built_at(context, wrapper)
    error = RuntimeError(message(context.error).strip().splitlines()[-1])
    faults.too_few_samples(context.state, wrapper, error, whole, samples, len(wrapper.device_ids), None, built)
    return True


def _not_cut(context: ErrorContext, wrapper: Any, module: str | None, site: Site | None) -> bool:
    """Whether the failing line reads what every replica was given whole: a list of numbers, or an object with tensors."""
    given = next((locals_of(f) for f in reversed(context.frames) if f.f_code is torch_internals.module_call), {})
    args, kwargs = given.get("args", ()), given.get("kwargs", {})
    lengths = [t.shape[wrapper.dim] for t in tensors_in((args, kwargs)) if t.dim() > wrapper.dim]
    samples, of_devices = max(lengths, default=0), "same device" in message(context.error)
    for name, value in faults.whole_values(wrapper.module, args, kwargs, samples).items() if site is not None else ():
        if name in _names_in(site.text if site is not None else "") and bool(faults.tensors_of_object(value)) == of_devices:
            text = message(context.error).strip().splitlines()[-1]
            replicas = len(wrapper.device_ids)
            faults.not_cut(context.state, module, site, text, name, value, samples, replicas)
            return True
    return False


def output_not_joined(context: ErrorContext) -> None:
    """DataParallel could not put together what the replicas returned."""
    frame = context.in_call(nn.DataParallel.forward.__code__)
    wrapper, outputs = (locals_of(frame).get(name) for name in ("self", "outputs")) if frame is not None else (None, None)
    if is_a(wrapper, nn.DataParallel) and is_a(outputs, list) and outputs and is_a(context.error, Exception):
        path = context.state.tracker.path_of(wrapper.module) or ""
        faults.not_joined(context.state, path, wrapper.module, outputs[0], context.error)


def worker_site(context: ErrorContext) -> Site | None:
    """The user's innermost line in the worker."""
    found = [(file, int(line), name) for file, line, name in _FRAME.findall(message(context.error)) if not is_library(file)]
    return Site(found[-1][0], found[-1][1], statements.statement_text(*found[-1][:2]), found[-1][2]) if found else None


def _owners(wrapper: Any, site: Site | None) -> list[nn.Module]:
    """Modules whose class has the method that failed: the text does not say which of them was running."""
    found = []
    for _, part in walk_modules(wrapper.module) if site is not None else ():
        codes = [function.__code__ for function in functions_of(type(part))]
        if site is not None and any(_is_in(code, site) for code in codes):
            found.append(part)
    return found


def _is_in(code: CodeType, site: Site) -> bool:
    """Whether a line is one of a function."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return (code.co_filename, code.co_name) == (site.file, site.function) and min(lines) <= site.line <= max(lines)


def _left_behind(context: ErrorContext, target: torch.device, owners: list[nn.Module], site: Site | None) -> bool:
    """Whether the failing line reads a plain attribute that is on another device than its replica."""
    for part in owners if site is not None and context.user is not None else ():
        for name in _attributes_in(site.text if site is not None else ""):
            value = own(part).get(name)
            if is_tensor(value) and value.device != target and context.user is not None:
                path, text = context.state.tracker.path_of(part), message(context.error).strip().splitlines()[-1]
                stray = dataclasses.replace(described(f"self.{name}", value), stray=True)
                stray = Names(context.state, context.user).with_birth(stray, value, target)
                _write(context, path, site, text, stray, device_id(target))
                return True
    return False


def _from_outside(context: ErrorContext, wrapper: Any, target: torch.device, module: str | None, site: Site | None) -> bool:
    """Whether the failing line reads a closure's or a global tensor that is on another device than its replica."""
    text = message(context.error).strip().splitlines()[-1]
    if site is None or context.user is None or not re.search("device", text, re.IGNORECASE):
        return False
    for name, tensor in outer_tensors(wrapper.module, site):
        if tensor.device != target and tensor.dim():
            stray = dataclasses.replace(described(name, tensor), stray=True)
            stray = Names(context.state, context.user).with_birth(stray, tensor, target)
            _write(context, module, site, text, stray, device_id(target))
            return True
    return False


def _wrong_cut(context: ErrorContext, wrapper: Any, module: str | None, site: Site | None) -> bool:
    """Whether an input has another length along the axis that is cut than the batch."""
    given = next((locals_of(f) for f in reversed(context.frames) if f.f_code is torch_internals.module_call), {})
    whole = list(tensors_in((given.get("args"), given.get("kwargs"))))
    odd, batch = faults.odd_lengths(whole, wrapper.dim)
    if not odd or "same device" in message(context.error):
        return False
    caller = Names(context.state, context.user) if context.user is not None else None
    operands = tuple(
        caller.with_birth(faults.report_cut_input(context.state, tensor), tensor, tensor.device)
        if caller is not None else faults.report_cut_input(context.state, tensor)
        for tensor in odd
    )  # fmt: skip
    text = message(context.error).strip().splitlines()[-1]
    details = FaultDetails(problem="axis", batch=batch, dim=wrapper.dim)
    faults.write_fault(context.state, "io", module, site, text, details, operands)
    return True


def _wrong_device(context: ErrorContext, target: DeviceId, module: str | None, site: Site | None, model: nn.Module) -> None:
    """A tensor that the worker's function puts on a device by name, where it should follow its replica."""
    text = message(context.error).strip().splitlines()[-1]
    if site is None or not re.search("device", text, re.IGNORECASE):
        return
    named = DEVICE_NAME.findall(text)
    for name, birth in [(read, birth) for read in _names_in(site.text) for birth in _decisions(site, read)]:
        fixed = next((d for d in _devices_in(birth, model) if d != target and (not named or str(d) in named)), None)
        if fixed is not None:
            call, op = statements.assigned_call(birth.text)
            partner = statements.first_parameter(site.file, site.line)
            stray = lost_operand(fixed, name, name, stray=True, birth=birth, birth_call=call, birth_op=op,
                                 birth_direct=True, birth_partner=partner)  # fmt: skip
            _write(context, module, site, text, stray, target)
            return
    if {str(CPU), str(target)} <= {*named} and (made := _made_on_host(site, model)) is not None:
        call, op, birth, name = made
        stray = lost_operand(CPU, name, name if name.isidentifier() else "", stray=True, source=name, birth=birth,
                             birth_call=call, birth_op=op, birth_direct=True,
                             birth_partner=statements.first_parameter(site.file, site.line))  # fmt: skip
        _write(context, module, site, text, stray, target)


def _made_on_host(site: Site, model: nn.Module) -> tuple[str, str, Site, str] | None:
    """The one call that can have put an operand of a line on the CPU: its source, function and line, and the operand.

    A factory of torch that was told no device, on the line itself or on the one that assigned a variable of it; None where
    what a function of the user returns is on the line, too.
    """
    layers = {name for _, part in walk_modules(model) for name, _ in registered_entries(part, "_modules")}
    lines = {read: next(_decisions(site, read), None) for read in _names_in(site.text)}
    places = [(site, ""), *((birth, name) for name, birth in lines.items() if birth is not None)]
    found: dict[str, tuple[str, Site, str]] = {}
    for birth, name in places:
        for node in (each for each in _nodes(birth.text) if isinstance(each, ast.Call)):
            owner, _, op = ast.unparse(node.func).rpartition(".")
            if (not owner or owner == "self") and op not in layers:
                return None
            number = "tensor" in op and isinstance(node.args[0] if node.args else None, ast.Constant | ast.UnaryOp)
            makes = owner == "torch" and op in names_of_factories() and not _PLACES.search(birth.text)
            if makes and not number:  # which may stay there
                found[ast.unparse(node)] = op, birth, name
    if len(found) != 1:
        return None
    ((call, (op, birth, name)),) = found.items()
    return call, op, birth, name or call


def _decisions(site: Site, name: str, depth: int = MOST_ASSIGNMENTS) -> Iterator[Site]:
    """The assignment of a variable above a line, and those of what it was computed from, if it was put nowhere on the way."""
    birth = statements.assignment(site.file, name, site.line)
    if birth is None or birth.function != site.function or birth.line >= site.line or depth == 0:
        return
    yield birth
    value = getattr(parsed_statement(birth.text), "value", None)
    if value is not None and not _PLACES.search(birth.text):
        for each in [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]:
            yield from _decisions(birth, each, depth - 1)


def _devices_in(site: Site, model: nn.Module) -> Iterator[DeviceId]:
    """Devices that a statement of a worker names: in words, by an attribute, or by a variable of its file or around it."""
    yield from map(DeviceId.parse, DEVICE_NAME.findall(site.text))
    kept = [own(part).get(name) for _, part in walk_modules(model) for name in _attributes_in(site.text)]
    for value in (*kept, *(value for _, value in outer_values(model, site))):
        if isinstance(value, torch.device) or (type(value) is str and DEVICE_NAME.fullmatch(value)):
            yield DeviceId.parse(str(value))


def _write(context: ErrorContext, module: str | None, site: Site | None, text: str, stray: Operand, target: DeviceId) -> None:
    partner = statements.first_parameter(site.file, site.line) if site is not None else ""
    others = (lost_operand(target, partner, partner),) if partner else ()
    fault = fault_at(context.state.tracker, "operands", "forward", site, module=module, phase="forward", error=text,
                     operands=(stray, *others), target=target, details=FaultDetails(in_replica=True))  # fmt: skip
    context.state.log.log_fault(fault)


def _attributes_in(text: str) -> list[str]:
    """`scale` of `return y * self.scale`."""
    nodes = [node for node in _nodes(text) if isinstance(node, ast.Attribute)]
    return [node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "self"]


def _names_in(text: str) -> list[str]:
    return [node.id for node in _nodes(text) if isinstance(node, ast.Name)]


def _nodes(text: str) -> Iterator[ast.AST]:
    tree = parsed(text, deep=True)
    return ast.walk(tree) if tree is not None else iter(())


def failure_site(context: ErrorContext) -> Site | None:
    """Where the program failed: in the worker, if it was one."""
    worker = worker_site(context) if CAUGHT.search(message(context.error)) else None
    return worker or to_site(site_of(context.user) if context.user is not None else None)
