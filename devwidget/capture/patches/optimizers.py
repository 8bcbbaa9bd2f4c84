"""Optimizers: what they are given when they are built, by which modules, and where their state is when they step."""

from __future__ import annotations

import ast
import dataclasses
import functools
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, MutableMapping
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture import torch_internals
from devwidget.capture.faults import operand_names
from devwidget.capture.modules import is_module, named_tensors, registered_entries
from devwidget.capture.object_fields import class_name, dict_of, is_a, items_of, parts_of
from devwidget.capture.patches import untrained
from devwidget.capture.patches.idle_optimizers import IdleOptimizers
from devwidget.capture.patches.optimizer_faults import (
    describe_operand,
    make_fault,
    mark_reachable,
)
from devwidget.capture.patches.untrained import UntrainedParameters
from devwidget.capture.patching.global_hooks import STEP_BEGINS, STEP_ENDS
from devwidget.capture.patching.registry import listen
from devwidget.capture.recording.births import Birth, TensorRef
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import parameters_of
from devwidget.capture.source_code.call_sites import RawSite, line_of, raw_site, site_of, to_site
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.stack import user_frame, user_frames
from devwidget.capture.source_code.statements import assignment, statement_text
from devwidget.capture.tensors import is_tensor
from devwidget.capture.undo import Undo
from devwidget.records.errors import error_text
from devwidget.records.site import Site, cell_label
from devwidget.records.syntax import parsed_statement
from devwidget.records.trace import NO_DETAILS, FaultDetails

_ASKING = frozenset({"parameters", "named_parameters"})


def asked_modules(frame: FrameType) -> tuple[weakref.ref[nn.Module], ...]:
    """The modules whose `parameters()` the line that builds an optimizer names, or the assignment of what it names.

    Returns:
        () where the line does not tell.
    """
    built = user_frame(frame)
    if built is None:
        return ()
    file, line, scope = built.f_code.co_filename, line_of(site_of(built)), Scope(built)
    texts = [statement_text(file, line)]
    for node in _parse_nodes(texts[0]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            before = assignment(file, node.id, line)
        else:
            before = None
        texts += [before.text] if before is not None else []
    owners = (_module_asked(node, scope) for text in texts for node in _parse_nodes(text))
    return tuple(weakref.ref(owner) for owner in owners if owner is not None)


def modules_given_whole(frame: FrameType, built: Site) -> tuple[weakref.ref[nn.Module], ...]:
    """The modules that the variables of a line now hold, where it gives an optimizer all parameters: `SGD(net.parameters())`.

    Args:
        frame: of the program now.
        built: the line that built the optimizer, in a function that still runs or in a cell that has run.
    """
    scope = next((Scope(each) for each in user_frames(frame) if _has_variables_of(each, built)), None)
    if scope is None:
        return ()
    calls = (node for node in _parse_nodes(built.text) if isinstance(node, ast.Call))
    owners = (_module_asked(given, scope) for call in calls for given in _first_argument(call))
    return tuple(weakref.ref(owner) for owner in owners if owner is not None)


def _first_argument(call: ast.Call) -> list[ast.expr]:
    return call.args[:1] or [keyword.value for keyword in call.keywords if keyword.arg == "params"]


def _has_variables_of(frame: FrameType, site: Site) -> bool:
    """Whether a line stands in the function of a frame; cells share their variables."""
    code = frame.f_code
    is_same_file = code.co_filename == site.file or (code.co_name == "<module>" and bool(cell_label(site.file)))
    return code.co_name == site.function and is_same_file


def _module_asked(node: ast.AST, scope: Scope) -> nn.Module | None:
    """`net` of `net.parameters()`; None for all other expressions."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _ASKING:
        return None
    owner = scope.value(node.func.value)
    if is_module(owner):
        return owner
    return None


def _parse_nodes(text: str) -> Iterator[ast.AST]:
    statement = parsed_statement(text)
    if statement is not None:
        return ast.walk(statement)
    return iter(())


def would_give(
    asked: tuple[weakref.ref[nn.Module], ...], parameter: torch.Tensor, mine: Collection[int], late: Collection[int],
    tracker: ModuleTracker,
) -> bool:  # fmt: skip
    """Whether an optimizer that is built in the same way now would get a parameter.

    Where nobody knows what was asked, it was a module that has the parameter, and all else of which the optimizer trains.

    Args:
        mine: ids of what the optimizer has.
        late: ids of what came, or was freed, after it.
    """
    if asked:
        owners = [owner for ref in asked if (owner := ref()) is not None]
        return any(parameter is each for owner in owners for _, each in named_tensors(owner, "_parameters"))
    for _, module in tracker.list_modules():
        members = [each for _, each in named_tensors(module, "_parameters")]
        others = [id(each) for each in members if id(each) not in late and each.requires_grad]
        if others and mine and all(each in mine for each in others) and any(each is parameter for each in members):
            return True
    return False


@dataclasses.dataclass(frozen=True, slots=True)
class _Construction:
    """When and where an optimizer was built, which parameters were frozen then, and which modules were asked for theirs."""

    number: int
    site: RawSite | None
    frozen: tuple[weakref.ref[torch.Tensor], ...]
    asked: tuple[weakref.ref[nn.Module], ...]


Made = MutableMapping[torch.optim.Optimizer, _Construction]
Begun = MutableMapping[torch.optim.Optimizer, int]
"""When an optimizer stepped for the first time."""


def watch_optimizers(state: RecordingState, undo: Undo) -> None:
    """Watch optimizers from their construction to each step."""
    made: Made = WeakIdKeyDictionary()
    begun: Begun = WeakIdKeyDictionary()
    phases: list[Any] = []
    missing = UntrainedParameters()
    idle = IdleOptimizers(state, missing)

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if state.is_elsewhere():
            return
        phases.append(state.tracker.begin_optimizer(has_closure=len(args) > 1 or "closure" in kwargs))
        check_state(state, optimizer, made, begun, sys._getframe(1))
        begun.setdefault(optimizer, state.log.number())
        missing.mark_trained(parameters_of(optimizer))
        _check_groups(state, optimizer, made, missing)
        built = made.get(optimizer)
        idle.check_step(optimizer, to_site(built.site) if built is not None else None, sys._getframe(1))
        untrained.check_coverage(state, optimizer, missing)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not state.is_elsewhere():
            idle.check_stepped(optimizer)
            state.tracker.end_optimizer(phases.pop() if phases else (None, False))

    construct = functools.partial(_construct, state, made, missing, idle)
    listen(state.is_here, torch.optim.Optimizer, "add_param_group", construct, undo)
    undo.add_step(missing.write_untrained, state)
    STEP_BEGINS.call_hook(before_step, undo)
    STEP_ENDS.call_hook(after_step, undo)


def _construct(
    state: RecordingState,
    made: Made,
    missing: UntrainedParameters,
    idle: IdleOptimizers,
    original: Callable[..., None],
    self: torch.optim.Optimizer,
    param_group: dict[str, Any],
) -> None:
    """`add_param_group`, which every optimizer calls for what it is given."""
    frame = sys._getframe(1)
    if self not in made:
        frozen = tuple(map(TensorRef, state.frozen))
        made[self] = _Construction(state.log.number(), raw_site(frame), frozen, asked_modules(frame))
    try:
        original(self, param_group)
    except ValueError as error:
        given = dict(items_of(param_group) or ()).get("params")
        if is_a(given, list):
            lost = [t for t in parts_of(given) if is_tensor(t) and not t.is_leaf]
        else:
            lost = []
        if not lost:
            raise
        not_a_leaf(state, error, frame, lost)
        if not state.heal:
            raise
        idle.leave_out(self)
        leaves = [t if t.is_leaf else t.detach().requires_grad_() for t in parts_of(given)]
        original(self, {**param_group, "params": leaves})
    missing.mark_trained(parameters_of(self))


def not_a_leaf(state: RecordingState, error: ValueError, frame: Any, lost: list[torch.Tensor]) -> None:
    """The optimizer was given a tensor that a move or another operation computed."""
    names = operand_names.Names(state, frame)
    operands = tuple(names.with_birth(describe_operand(names.expression(t) or "params", t), t, t.device) for t in lost)
    _write_fault(state, names, frame, "leaf", error_text(error), operands, NO_DETAILS)


def check_state(state: RecordingState, optimizer: torch.optim.Optimizer, made: Made, begun: Begun, frame: FrameType) -> None:
    """State that was allocated before its parameter moved. The `step` entry may stay on the CPU."""
    for parameter, entries, key, value in _list_stray_state(optimizer):
        names = operand_names.Names(state, frame)
        born = state.births.find_birth(value)
        beside = born is not None and _is_from(state, born, parameter)
        if born is None:
            history = ""
        elif beside:
            history = "moved"
        else:
            history = "put"
        details = FaultDetails("state", class_name(type(optimizer)), state=key, history=history)
        birth = born.find_root().site if born is not None and not beside else None
        if beside and born is not None and born.number > begun.get(optimizer, born.number):  # at an earlier step
            moved = state.births.find_birth(parameter)
            birth = moved.site if moved is not None else None
        birth = birth or (made[optimizer].site if optimizer in made else None)
        known = to_site(birth) or find_construction(user_frames(frame), optimizer)
        operand = describe_operand(f"state[{key!r}]", value)
        error = f"RuntimeError: {key} of a parameter on {parameter.device} is on {value.device}"
        _write_fault(state, names, frame, "optimizer", error, (operand,), details, known, device_id(parameter.device))
        if state.heal:
            with state.tracker.set_cause("healed"):
                entries[key] = value.to(parameter.device)


def _list_stray_state(optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, Any, str, torch.Tensor]]:
    """Parameter, its entries, name and tensor of each one that is not on the device of the parameter."""
    with torch_internals.DisableTorchFunction():  # our looking is no call for function modes
        return [
            (parameter, entries, key, value)
            for parameter, entries in items_of(dict_of(optimizer).get("state")) or ()
            for key, value in (items_of(entries) or () if is_tensor(parameter) else ())
            if is_tensor(value) and type(key) is str and key != "step" and value.device != parameter.device
        ]


def _is_from(state: RecordingState, born: Birth, parameter: torch.Tensor) -> bool:
    """Whether a state was allocated from its parameter, as it was before it moved: `zeros_like(parameter)`."""
    birth = state.births.find_birth(parameter)
    while birth is not None:
        if birth.find_root() is born.find_root():
            return True
        birth = birth.find_root().origin
    return False


def _check_groups(state: RecordingState, optimizer: torch.optim.Optimizer, made: Made, missing: UntrainedParameters) -> None:
    """Parameters that got a gradient, are in no group, and would be in one if the optimizer were built in the same way now."""
    built, mine = made.get(optimizer), {id(parameter) for parameter in parameters_of(optimizer)}
    of_loss = list(_of_loss(state, mine))
    if built is None:
        _check_older(state, optimizer, of_loss, missing)
        return
    frozen = {id(parameter) for ref in built.frozen if (parameter := ref()) is not None}
    late = [
        (name, parameter)
        for name, parameter in _list_lacking(state, mine)
        if id(parameter) in frozen or _is_younger(state, parameter, built.number)
    ]
    ids = {id(parameter) for _, parameter in late}
    late = [each for each in late if would_give(built.asked, each[1], mine, ids, state.tracker)]
    if late or of_loss:
        if any(id(parameter) in frozen for _, parameter in late):
            reason = "frozen"
        elif late:
            reason = "younger"
        else:
            reason = "loss"
        _add_missing(state, optimizer, [*late, *of_loss], reason, to_site(built.site), missing, sys._getframe(2))


def _list_lacking(state: RecordingState, mine: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters of the model that got a gradient and that an optimizer does not have."""
    for path, module in state.tracker.list_modules():
        for name, parameter in registered_entries(module, "_parameters"):
            if parameter.grad is not None and id(parameter) not in mine:
                yield f"{path}.{name}".strip("."), parameter


def _check_older(
    state: RecordingState,
    optimizer: torch.optim.Optimizer,
    of_loss: list[tuple[str, torch.Tensor]],
    missing: UntrainedParameters,
) -> None:
    """Find what an optimizer lacks that is older than the recording, if the source tells where it was built.

    Other optimizers may be older too, and train what this one lacks without a step in the recording.
    """
    if id(optimizer) in missing.older:
        return
    mine = {id(parameter) for parameter in parameters_of(optimizer)}
    lacking = [each for each in _list_lacking(state, mine) if each[1].requires_grad]
    if not lacking and not of_loss:
        return
    missing.older.add(id(optimizer))  # much is looked at: once is enough
    frame = sys._getframe(3)
    if mark_reachable(frame, missing):
        site = find_construction(user_frames(frame), optimizer)
    else:
        site = None
    if site is None:
        return
    if _has_any(state, mine):
        asked = modules_given_whole(frame, site)
    else:
        asked = ()
    later = [each for each in lacking if asked and would_give(asked, each[1], mine, set(), state.tracker)]
    if later or of_loss:
        _add_missing(state, optimizer, [*later, *of_loss], "later" if later else "loss", site, missing, frame)


def _has_any(state: RecordingState, mine: set[int]) -> bool:
    """Whether an optimizer has a parameter of the model; for one that has none, see `idle_optimizers`."""
    parameters = (each for _, module in state.tracker.list_modules() for _, each in registered_entries(module, "_parameters"))
    return any(id(each) in mine for each in parameters)


def _add_missing(
    state: RecordingState,
    optimizer: torch.optim.Optimizer,
    lacking: list[tuple[str, torch.Tensor]],
    reason: str,
    built: Site | None,
    missing: UntrainedParameters,
    frame: FrameType,
) -> None:
    names = operand_names.Names(state, frame)
    details = FaultDetails("missing", class_name(type(optimizer)), reason=reason)
    operands = tuple(describe_operand(name, parameter) for name, parameter in lacking)
    fault = make_fault(state, names, frame, "optimizer", "", operands, details, built)
    missing.add_fault(id(optimizer), fault, tuple(id(parameter) for _, parameter in lacking))


def _of_loss(state: RecordingState, mine: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters of a module that the loss calls, which is no part of the model: they got a gradient too."""
    for module, (owner, _) in list(state.tracker.strangers.items()):
        for name, parameter in named_tensors(module, "_parameters") if owner is None and module.training else ():
            if parameter.grad is not None and id(parameter) not in mine:
                yield f"{class_name(type(module))}.{name}", parameter


def _is_younger(state: RecordingState, parameter: torch.Tensor, number: int) -> bool:
    known = state.births.find_birth(parameter)
    return known is not None and known.find_root().number > number


def _write_fault(state: RecordingState, *rest: Any) -> None:
    state.log.log_fault(make_fault(state, *rest))
