"""What the library frames of a traceback know by themselves: optimizers, checkpoints, wrappers, backward."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture import data_parallel
from devwidget.capture.data_parallel import faults
from devwidget.capture.data_parallel.constructions import report_absent
from devwidget.capture.explain.error_context import ErrorContext
from devwidget.capture.explain.unwatched_calls import meet_absent_of_file, meet_state_on_gpu
from devwidget.capture.faults import leaves, operand_names, uncalled
from devwidget.capture.faults.owners import in_class
from devwidget.capture.modules import is_module, own
from devwidget.capture.object_fields import class_name, is_a, items_of
from devwidget.capture.patches import optimizers, state_dicts
from devwidget.capture.recording.descriptions import fault_at, lost_operand, operand_of
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.call_sites import is_library, locals_of, site_of, to_site
from devwidget.capture.source_code.definitions import ClassName, definition_of, statements_of
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.tensors import is_tensor, node_of
from devwidget.records.errors import message
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_statement, targets_of
from devwidget.records.trace import FaultDetails, Operand

_GRADIENT = re.compile(r"Function (\w+)Backward returned an invalid gradient.*expected device (\S+) but got (\S+)")


def optimizer_state(context: ErrorContext) -> None:
    """A step failed, and the state is not where its parameters are."""
    running = [f for f in context.frames if is_a(_self(f), torch.optim.Optimizer)]
    frame = next(iter(running), None)
    if frame is None or frame.f_code.co_name in ("__init__", "add_param_group") or any(map(_fills_items, running)):
        return
    optimizer, caller = _self(frame), context.caller_of(frame)
    _, assigned = operand_names.Names(context.state, caller).argument_of(optimizer)
    optimizers.check_state(context.state, optimizer, {}, {}, caller)
    _born(context, assigned, optimizer)


def _fills_items(frame: FrameType) -> bool:
    """Whether the function of the user that a frame runs puts items into something: `state['speed'] = torch.zeros(3)`."""
    node = definition_of(frame.f_code)
    parts = [part for each in statements_of(node) for part in targets_of(each)] if node is not None else []
    return any(isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant) for part in parts)


def uncalled_move(context: ErrorContext) -> None:
    """A module was given `clip = waveform.cuda`, the method and not what it returns."""
    if isinstance(context.error, TypeError):
        for running in context.state.tracker.here.stack[::-1]:
            frames = [f for f in context.frames if locals_of(f).get("self") is running.module]
            given = [value for frame in frames for value in locals_of(frame).values()]
            user = context.caller_of(frames[0]) if frames else None
            if user is not None:
                uncalled.look(context.state, dataclasses.replace(running, site=site_of(user)), tuple(given), context.error)


def missing_gradient(context: ErrorContext) -> None:
    """The line reads `.grad` of a tensor that a move made: the gradient is with the leaf behind it."""
    frame = context.user
    node = parsed_statement(here_text(context)) if isinstance(context.error, AttributeError) else None
    if frame is None or node is None:
        return
    for part in ast.walk(node):
        owner = Scope(frame).value(part.value) if isinstance(part, ast.Attribute) and part.attr == "grad" else None
        if is_tensor(owner):
            leaves.look_for_gradient(context.state, owner, frame)


def lost_state(context: ErrorContext) -> None:
    """The line reads an attribute that the replicas of a DataParallel model have written, and lost."""
    frame = context.user
    node = parsed_statement(here_text(context)) if "'NoneType'" in message(context.error) else None
    if frame is None or node is None:
        return
    scope = Scope(frame)
    for part in ast.walk(node):
        owner = scope.value(part.value) if isinstance(part, ast.Attribute) else None
        if isinstance(part, ast.Attribute) and is_module(owner) and own(owner).get(part.attr, owner) is None:
            look = functools.partial(classes.first_write, attribute=part.attr)
            written = in_class(type(owner), look)
            path = context.state.tracker.path_of(owner)
            if written is not None and any(is_a(m, nn.DataParallel) for _, m in context.state.tracker.list_modules()):
                details = FaultDetails(problem="write", attribute=part.attr, owner=type(owner).__name__)
                faults.write_fault(context.state, "replica", path, written, context.error_text, details)


def here_text(context: ErrorContext) -> str:
    """The statement that failed."""
    site = to_site(site_of(context.user)) if context.user is not None else None
    return site.text if site is not None else ""


def lost_leaf(context: ErrorContext) -> None:
    """An optimizer was given a tensor that is no leaf."""
    if not is_a(context.error, ValueError) or "non-leaf" not in message(context.error):
        return
    frame = next((f for f in context.below if f.f_code.co_name == "add_param_group"), None)
    group = locals_of(frame).get("param_group") if frame is not None else None
    given = group.get("params") if is_a(group, dict) else None
    lost = [t for t in given if is_tensor(t) and not t.is_leaf] if is_a(given, list) else []
    if lost and context.user is not None:
        optimizers.not_a_leaf(context.state, context.error, context.user, lost)


def checkpoint_prefix(context: ErrorContext) -> None:
    """Keys of a checkpoint miss the module's by `module.`."""
    frame = context.in_call(nn.Module.load_state_dict.__code__)
    module, given = (_self(frame), locals_of(frame).get("state_dict")) if frame is not None else (None, None)
    if frame is None or not is_module(module) or not is_a(given, dict):
        return
    caller = context.caller_of(frame)
    variables = list(locals_of(caller).values())
    inside = [part for value in variables for _, part in items_of(value) or ()]  # `checkpoint['model']`
    alike = (v for v in (*variables, *inside) if is_a(v, dict) and dict.keys(v) == dict.keys(given))
    original = next(alike, given)
    names = state_dicts.find_misnamed(module, given)
    if names:
        state_dicts.report_misnamed(context.state, module, original, names, caller)


def misplaced_wrapper(context: ErrorContext) -> None:
    """DataParallel refused a model that is not on `device_ids[0]`."""
    frame = context.in_call(nn.DataParallel.forward.__code__)
    wrapper = _self(frame) if frame is not None else None
    refused = "module must have its parameters" in message(context.error)
    if frame is None or not is_a(wrapper, nn.DataParallel) or not refused:
        return
    misplaced = data_parallel.first_misplaced(wrapper)
    if misplaced is not None:
        caller = context.caller_of(frame)
        data_parallel.report_misplaced(wrapper, misplaced, context.state, site_of(caller))
        _, assigned = operand_names.Names(context.state, caller).argument_of(wrapper)
        _born(context, assigned, wrapper)


def absent_gpus(context: ErrorContext) -> None:
    """DataParallel was built with numbers that no GPU has."""
    frame = context.in_call(nn.DataParallel.__init__.__code__)
    if frame is not None and isinstance(context.error, AssertionError):
        report_absent(context.state, locals_of(frame).get("device_ids"), context.caller_of(frame))


def absent_of_file(context: ErrorContext) -> None:
    """A file was saved on a device that is not there."""
    if context.user is not None:
        meet_absent_of_file(context.state, context.error, context.user)


def generator_state(context: ErrorContext) -> None:
    """The state of a random generator was read to a GPU with the rest of a checkpoint."""
    meet_state_on_gpu(context.state, context.error, context.below[::-1])


def vector_of_losses(context: ErrorContext) -> None:
    """`backward` of several numbers: DataParallel gathered one scalar loss from each replica."""
    if "only for scalar outputs" not in message(context.error) or context.user is None:
        return
    losses = [v for v in locals_of(context.user).values() if is_tensor(v) and v.dim() == 1]
    for path, module in context.state.tracker.list_modules():
        if not is_a(module, nn.DataParallel):
            continue
        replicas = len(module.device_ids)
        if replicas > 1 and any(len(loss) == replicas for loss in losses):
            site = to_site(site_of(context.user))
            faults.scalar_outputs(context.state, f"{path}.module".strip("."), type(module.module), replicas, site)


def wrong_gradient(context: ErrorContext) -> None:
    """A hand-written backward returned a gradient on another device; the graph of the loss leads to its class."""
    found = _GRADIENT.search(message(context.error))
    graph = [v for f in context.frames for v in locals_of(f).values() if is_tensor(v) and node_of(v) is not None]
    kind = _function_named(found[1], [node_of(tensor) for tensor in graph]) if found is not None else None
    if found is None or kind is None or context.user is None:
        return
    code = kind.backward.__code__
    owner = ClassName(class_name(kind), (code.co_firstlineno,))
    birth = None if is_library(code.co_filename) else classes.last_return(code.co_filename, owner, "backward")
    made = _decided(code, birth)
    operand = lost_operand(device_id(torch.device(found[3])), "gradient", "", stray=True, birth=made)
    if made is not None:
        call, op = statements.assigned_call(made.text)
        partner = statements.first_parameter(made.file, made.line)
        operand = dataclasses.replace(operand, birth_call=call, birth_op=op, birth_direct=True, birth_partner=partner)
    call, target = f"{class_name(kind)}.backward", device_id(torch.device(found[2]))
    site = site_of(context.user)
    context.state.log.log_fault(fault_at(context.state.tracker, "operands", call, site, module=None, phase="backward",
                                   error=context.error_text, operands=(operand,), target=target))  # fmt: skip


def _decided(code: Any, returned: Site | None) -> Site | None:
    """The line of a backward that made the value that it returns first."""
    if returned is None:
        return None
    name = returned.text.removeprefix("return").strip(" ()").split(",")[0].strip()
    return (statements.assignment(code.co_filename, name, returned.line) if name.isidentifier() else None) or returned


def _function_named(name: str, nodes: list[Any]) -> Any:
    """The `autograd.Function` whose node in a graph has this name."""
    seen: set[Any] = set()
    while nodes and len(seen) < 100_000:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kind = getattr(node, "_forward_cls", None)
        if kind is not None and class_name(kind) == name:
            return kind
        nodes += [following for following, _ in node.next_functions]
    return None


def described(name: str, tensor: torch.Tensor) -> Operand:
    """A value of the failing line."""
    return operand_of(tensor, name, name)


def _self(frame: Any) -> Any:
    return locals_of(frame).get("self")


def built_at(context: ErrorContext, owner: object) -> Site | None:
    """Where the files of the model's classes build a wrapper or an optimizer of this class."""
    files = [f.f_code.co_filename for f in context.frames if not is_library(f.f_code.co_filename)]
    for _, module in context.state.tracker.list_modules():
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        if code is not None and not is_library(code.co_filename) and code.co_filename not in files:
            files.append(code.co_filename)
    found = (statements.made_by(file, type(owner).__name__) for file in files)
    return next((site for site in found if site is not None), None)


def _born(context: ErrorContext, birth: Site | None, made: object) -> None:
    """Faults without a birth get the line that made the object behind them; `model = parts["model"]` only hands it on."""
    if birth is None or not statements.assigned_call(birth.text)[0]:
        birth = built_at(context, made)
    if birth is None:
        return
    faults = context.state.log.faults
    faults[:] = [fault if fault.birth else dataclasses.replace(fault, birth=birth) for fault in faults]


ALL = (
    optimizer_state,
    lost_leaf,
    uncalled_move,
    missing_gradient,
    lost_state,
    checkpoint_prefix,
    misplaced_wrapper,
    absent_gpus,
    absent_of_file,
    generator_state,
    vector_of_losses,
    wrong_gradient,
)
