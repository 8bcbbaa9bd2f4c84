"""Faults that the library frames of a traceback identify: optimizers, checkpoints, wrappers, backward."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.data_parallel import constructions, faults
from devwidget.capture.explain import raised_errors
from devwidget.capture.explain.error_context import ErrorContext, called_module
from devwidget.capture.explain.traceback_frames import CAUGHT, FRAME_IN_TEXT, site_in_worker
from devwidget.capture.faults import moves
from devwidget.capture.object_fields import class_name, is_a
from devwidget.capture.patches import optimizers, state_dicts
from devwidget.capture.recording.event_log import device_id, lost_operand
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.arguments import arguments_of
from devwidget.capture.source_code.call_sites import site_of, to_site
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.provenance import Origin
from devwidget.capture.source_code.source_files import definition_of, statements_of
from devwidget.capture.source_code.stack import is_users_code, locals_of
from devwidget.capture.tensors import is_module, is_optimizer, is_tensor, node_of, nodes_behind, own, own_parameters, tensors_in
from devwidget.records.errors import message
from devwidget.records.fault_details import LostWrite, NoParameters
from devwidget.records.site import Site
from devwidget.records.syntax import nodes_in, parsed_statement, targets_of

_GRADIENT = re.compile(r"Function (\w+)Backward returned an invalid gradient.*expected device (\S+) but got (\S+)")
_ASSIGNED = re.compile(r"cannot assign '[\w.]+' as parameter '(\w+)'")


def optimizer_state(context: ErrorContext) -> None:
    """Report a step that failed because the optimizer state is not where its parameters are."""
    running = [frame for frame in context.frames if is_optimizer(_self(frame))]
    if not running or running[0].f_code.co_name in ("__init__", "add_param_group") or any(map(_fills_items, running)):
        return
    optimizer, caller = _self(running[0]), context.caller_of(running[0])
    optimizers.check_state(context.state, optimizer, None, caller)


def _fills_items(frame: FrameType) -> bool:
    """Return whether the user function of a frame assigns items: `state['speed'] = torch.zeros(3)`."""
    for statement in statements_of(definition_of(frame.f_code)):
        for target in targets_of(statement):
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                return True
    return False


def idle_optimizer(context: ErrorContext) -> None:
    """Report that GradScaler steps an optimizer without a parameter of the model, whose gradients it has."""
    frame = context.in_call(torch.amp.GradScaler.step)
    optimizer = locals_of(frame).get("optimizer")
    if frame is None or not is_optimizer(optimizer):
        return
    watch = optimizers.OptimizerWatch(context.state)
    context.state.tracker.phases.add("backward")
    watch.check_step(optimizer, None, frame)
    watch.write_untrained()


def lost_leaf(context: ErrorContext) -> None:
    """Report that an optimizer got a non-leaf tensor."""
    if context.user is None or not isinstance(context.error, ValueError) or "non-leaf" not in context.message:
        return
    for frame in context.below:
        if frame.f_code.co_name == "add_param_group":
            lost = [tensor for tensor in tensors_in(locals_of(frame).get("param_group")) if not tensor.is_leaf]
            optimizers.not_a_leaf(context.state, context.error, context.user, lost)
            return


def uncalled_move(context: ErrorContext) -> None:
    """Report that a module got a method instead of its result: `clip = waveform.cuda`."""
    if not isinstance(context.error, TypeError):
        return
    for running in reversed(context.state.tracker.here.stack):
        for frame in context.frames:
            variables = locals_of(frame)
            if variables.get("self") is running.module:
                called = dataclasses.replace(running, site=site_of(context.caller_of(frame)))
                moves.look_for_uncalled(context.state, called, tuple(variables.values()), context.error)


def attribute_error(context: ErrorContext) -> None:
    """Report what the failing line reads, and is None.

    That is `.grad` of a tensor that a move made, whose gradient is on the leaf behind it; or an attribute that the replicas of
    a DataParallel model wrote and lost.
    """
    if context.user is None:
        return
    reads_lost_state = "'NoneType'" in context.message and any(_wrappers(context))
    for owner, name in _attributes_read(context.user):
        if isinstance(context.error, AttributeError) and name == "grad" and is_tensor(owner):
            moves.look_for_gradient(context.state, owner, context.user)
        elif reads_lost_state and is_module(owner) and own(owner).get(name, owner) is None:
            written = classes.first_write(type(owner), name)
            if written is not None:
                path = context.state.tracker.path_of(owner)
                faults.write_fault(context.state, "replica", path, written, LostWrite(name), error=context.error_text)


def _attributes_read(frame: FrameType) -> Iterator[tuple[object, str]]:
    """Yield the attributes that the line of a frame reads, and their objects."""
    node, scope = parsed_statement(statements.statement_text(frame.f_code.co_filename, frame.f_lineno)), Scope(frame)
    for part in nodes_in(node, ast.Attribute):
        yield scope.value(part.value), part.attr


def _wrappers(context: ErrorContext) -> Iterator[tuple[str, nn.DataParallel[Any]]]:
    for path, module in context.state.tracker.list_modules():
        if is_a(module, nn.DataParallel):
            yield path, module


def checkpoint_prefix(context: ErrorContext) -> None:
    """Report checkpoint keys that differ from the module's by `module.`."""
    frame = context.in_call(nn.Module.load_state_dict)
    if frame is None:
        return
    module, given = _self(frame), locals_of(frame).get("state_dict")
    if not is_module(module) or not is_a(given, dict):
        return
    names = state_dicts.find_misnamed(module, given)
    if not names:
        return
    caller, written = context.caller_of(frame), arguments_of(frame) or {}
    if "state_dict" in written:  # torch has copied it
        loaded = Scope(caller).value(written["state_dict"])
        given = loaded if is_a(loaded, dict) else given
    state_dicts.report_misnamed(context.state, module, given, names, caller)


def absent_gpus(context: ErrorContext) -> None:
    """Report DataParallel device numbers that no GPU has."""
    frame = context.in_call(nn.DataParallel.__init__)
    if frame is not None and isinstance(context.error, AssertionError):
        constructions.report_absent(context.state, locals_of(frame).get("device_ids"), context.caller_of(frame))


def plain_tensor(context: ErrorContext) -> None:
    """Report a plain tensor that was assigned to a parameter of a module."""
    found, frame = _ASSIGNED.search(context.message), context.in_call(nn.Module.__setattr__)
    if found is None or frame is None or context.user is None:
        return
    owner = _self(frame)
    current = own_parameters(owner).get(found[1])
    context.state.report_fault(
        "parameter",
        found[1],
        site_of(context.user),
        module=context.state.tracker.path_of(owner),
        error=context.error_text,
        expression=class_name(type(owner)),
        target=device_id(current.device) if current is not None else None,
    )


def vector_of_losses(context: ErrorContext) -> None:
    """Report `backward` on several numbers: DataParallel gathered one scalar loss from each replica."""
    if context.user is None or "only for scalar outputs" not in context.message:
        return
    tensors = filter(is_tensor, locals_of(context.user).values())
    lengths = {len(tensor) for tensor in tensors if tensor.dim() == 1}
    for path, wrapper in _wrappers(context):
        replicas = len(wrapper.device_ids)
        if replicas > 1 and replicas in lengths:
            site = to_site(site_of(context.user))
            faults.scalar_outputs(context.state, f"{path}.module".strip("."), type(wrapper.module), replicas, site)


def wrong_gradient(context: ErrorContext) -> None:
    """Report a hand-written backward that returned a gradient on another device. The graph of the loss leads to its class."""
    found = _GRADIENT.search(context.message)
    kind = _find_function(context, found[1]) if found is not None else None
    if found is None or kind is None or context.user is None:
        return
    origin, birth = Origin(None), _line_of_gradient(kind)
    if birth is not None:
        call, op = statements.assigned_call(birth.text)
        partner = statements.first_parameter(birth.file, birth.line)
        origin = Origin(birth, (), call, op, direct=True, partners=(partner,))
    device = device_id(torch.device(found[3]))
    context.state.report_fault(
        "operands",
        f"{class_name(kind)}.backward",
        site_of(context.user),
        module=None,
        phase="backward",
        error=context.error_text,
        operands=(lost_operand(device, "gradient", "", stray=True, **origin.list_fields()),),
        target=device_id(torch.device(found[2])),
    )


def _line_of_gradient(kind: Any) -> Site | None:
    """Return the line of a user's backward that created the first returned value."""
    code = kind.backward.__code__
    function = definition_of(code)
    returned = statements.last_return(code.co_filename, function) if function is not None else None
    if returned is None:
        return None
    name = returned.text.removeprefix("return").strip(" ()").split(",")[0].strip()
    return statements.assignment(code.co_filename, name, returned.line) or returned


def _find_function(context: ErrorContext, name: str) -> Any:
    """Return the `autograd.Function` of a name, in the graphs of the tensors in the frames."""
    nodes: list[Any] = []
    for frame in context.frames:
        nodes += map(node_of, filter(is_tensor, locals_of(frame).values()))
    for node in nodes_behind(nodes):
        kind = getattr(node, "_forward_cls", None)
        if kind is not None and class_name(kind) == name:
            return kind
    return None


def _self(frame: FrameType) -> Any:
    return locals_of(frame).get("self")


# DataParallel. Without `births on` only the text of a worker's exception is available.


def wrapper_call(context: ErrorContext) -> None:
    """Report what a wrapper could not run, split or join: its own frame has the inputs and the outputs."""
    frame = context.in_call(nn.DataParallel.forward)
    variables = locals_of(frame)
    wrapper, outputs = variables.get("self"), variables.get("outputs")
    if frame is None or not is_a(wrapper, nn.DataParallel):
        return
    caller, caught = context.caller_of(frame), CAUGHT.search(message(context.raised))
    if "module must have its parameters" in context.message:
        misplaced = constructions.first_misplaced(wrapper)
        if misplaced is not None:
            constructions.report_misplaced(wrapper, misplaced, variables.get("inputs"), context.state, caller)
        return
    call = faults.CallFaults(context.state, wrapper, _inputs_of(context, wrapper), caller)
    if caught is not None:
        _report_replica(context, call, caught[1], int(caught[2]))
    elif outputs is not None:
        call.check_outputs(outputs)
    elif variables.get("replicas") is not None:
        path = context.state.tracker.path_of(wrapper.module)
        call.blame_split(faults.FailedReplica(0, path, to_site(site_of(caller)), context.error_text))


def _inputs_of(context: ErrorContext, wrapper: nn.Module) -> tuple[Any, Any]:
    for frame in context.frames:
        call = called_module(frame)
        if call is not None and call[0] is wrapper:
            return call[1:]
    return (), {}


def _report_replica(context: ErrorContext, call: faults.CallFaults, kind: str, number: int) -> None:
    """Report what the text of a worker's traceback shows."""
    text, module = message(context.raised), call.wrapper.module
    site = site_in_worker(text)
    owners = faults.owners_at(module, site)
    path = context.state.tracker.path_of(owners[0] if len(owners) == 1 else module)
    if kind == "StopIteration":
        detail = NoParameters(faults.tensor_in(module, site))
        faults.write_fault(context.state, "replica", path, site, detail, error=kind)
        return
    places = [(file, name, int(line)) for file, line, name in FRAME_IN_TEXT.findall(text)]

    def runs(code: CodeType, attribute: str) -> bool:
        is_meant = is_users_code(code) or (site is not None and f"self.{attribute}" in site.text)
        return is_meant and any(faults.has_line(code, *place) for place in places)  # each layer of torch runs the same code

    failed = faults.FailedReplica(number, path, site, text.strip().splitlines()[-1])
    if "same device" not in text or site is None or not call.blame_stored(failed, runs):
        call.blame_split(failed)


ALL = (
    optimizer_state,
    idle_optimizer,
    lost_leaf,
    uncalled_move,
    attribute_error,
    checkpoint_prefix,
    absent_gpus,
    plain_tensor,
    vector_of_losses,
    wrong_gradient,
    wrapper_call,
    *raised_errors.READERS,  # after it: the wrapper compares devices itself
)
