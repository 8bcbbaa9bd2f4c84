"""Check optimizers: the parameters they get and lack, from which modules, and where their state is when they step."""

from __future__ import annotations

import ast
import dataclasses
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture import torch_internals
from devwidget.capture.faults.moves import leaf_behind
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.faults.owners import find_built, unregistered_tensors
from devwidget.capture.object_fields import class_name, dict_of, is_among, items_of, parts_of
from devwidget.capture.patching.global_hooks import STEP_BEGINS, STEP_ENDS
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.event_log import device_id, operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import parameters_of, tensors_of
from devwidget.capture.source_code import classes
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.frames import reachable_objects
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.stack import user_frame, user_frames
from devwidget.capture.source_code.statements import assignment
from devwidget.capture.tensors import gradient_of, is_leaf, is_module, is_optimizer, is_parameter, is_tensor, named_tensors
from devwidget.capture.undo import Undo
from devwidget.capture.walk import TooManyObjects
from devwidget.records.errors import error_text
from devwidget.records.fault_details import MissingParameters, StrayState
from devwidget.records.site import Site, cell_label
from devwidget.records.syntax import parsed_statement
from devwidget.records.trace import Family, Fault, Held, Operand


def describe_operand(name: str, tensor: torch.Tensor) -> Operand:
    """Describe a tensor that is not where it should be, or not registered where it should be."""
    return operand_of(tensor, name, name, stray=True)


def make_fault(state: RecordingState, frame: FrameType, what: Family, operands: tuple[Operand, ...], **fields: Any) -> Fault:
    """Return a fault of the step or the construction of an optimizer."""
    call = "step" if what == "optimizer" else "add_param_group"
    fields |= {"module": None, "operands": operands, "healed": state.heal, "model_name": Names(state, frame).model_name()}
    return state.tracker.describe_fault(what, call, raw_site(frame), **fields)


def trains_model(state: RecordingState, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer has a parameter of the model."""
    mine = set(map(id, parameters_of(optimizer)))
    return any(id(each) in mine for _, each in state.tracker.list_parameters())


def _find_use(state: RecordingState, module: nn.Module, held: Held, tensor: torch.Tensor) -> tuple[str | None, Site | None]:
    """Return the path of the module that used a parameter, and where."""
    path, used = held.module, classes.attribute_read(type(module), held.name)
    for stranger, (owner, site) in state.tracker.strangers.items():
        if any(parameter is tensor for _, parameter in named_tensors(stranger, "_parameters")):
            path, used = owner, to_site(site) or used
    return path, used or held.assigned


def _list_with_gradients(root: nn.Module) -> list[tuple[str, torch.Tensor]]:
    found = []
    for name, parameter in named_tensors(root, "_parameters"):
        if parameter.requires_grad and parameter.grad is not None:
            found.append((name, parameter))
    return found


_NamedParameters = list[tuple[str, torch.Tensor]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Construction:
    """The line that built an optimizer, and the modules whose parameters it passed as a whole."""

    site: Site | None
    given: tuple[weakref.ref[nn.Module], ...] = ()

    def list_given(self) -> list[torch.Tensor]:
        """Return the current parameters of these modules."""
        found: list[torch.Tensor] = []
        for ref in self.given:
            owner = ref()
            if owner is not None:
                found += [tensor for _, tensor in named_tensors(owner, "_parameters")]
        return found


def _read_construction(site: Site | None, frame: FrameType | None) -> _Construction:
    """Read the line that built an optimizer, and the assignments that it uses.

    Parameters that are chosen by their name or shape are left out on purpose, but not those that were frozen.

    Args:
        site: that line.
        frame: the frame whose variables it reads; without one, its modules are unknown.
    """
    if site is None or frame is None:
        return _Construction(site)
    scope, nodes = Scope(frame), list(_parse_nodes(site.text))
    for node in nodes.copy():
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if (before := assignment(site.file, name, site.line)) is not None:
                nodes += _parse_nodes(before.text)
    chosen = {id(part) for node in nodes if _chooses(node) for part in ast.walk(node)}
    owners = [_module_asked(node, scope) for node in nodes if id(node) not in chosen]
    return _Construction(site, tuple(weakref.ref(owner) for owner in owners if owner is not None))


def _chooses(node: ast.AST) -> bool:
    """Return whether an expression takes some of the parameters, by more than `requires_grad`."""
    match node:
        case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops):
            tests = [test for loop in loops for test in loop.ifs]
        case ast.Call(func=ast.Name(id="filter"), args=[ast.Lambda(body=test), _]):
            tests = [test]
        case _:
            return False
    return any(getattr(test, "attr", "") != "requires_grad" for test in tests)


def _has_variables_of(frame: FrameType, site: Site) -> bool:
    """Return whether a line is in the function of a frame. Cells share their variables."""
    code = frame.f_code
    is_same_file = code.co_filename == site.file or (code.co_name == "<module>" and bool(cell_label(site.file)))
    return code.co_name == site.function and is_same_file


def _module_asked(node: ast.AST, scope: Scope) -> nn.Module | None:
    """Return `net` of `net.parameters()`; None for all other expressions."""
    match node:
        case ast.Call(func=ast.Attribute(value=asked, attr="parameters" | "named_parameters")):
            owner = scope.value(asked)
            if is_module(owner):
                return owner
    return None


def _parse_nodes(text: str) -> Iterator[ast.AST]:
    statement = parsed_statement(text)
    if statement is not None:
        yield from ast.walk(statement)


def watch_optimizers(state: RecordingState, undo: Undo) -> None:
    """Watch optimizers from construction to each step."""
    watch = OptimizerWatch(state)
    state.listen(torch.optim.Optimizer, "add_param_group", watch.add_group, undo)
    undo.add_step(watch.write_untrained)
    state.call_hook(STEP_BEGINS, watch.before_step, undo)
    state.call_hook(STEP_ENDS, watch.after_step, undo)


@dataclasses.dataclass(slots=True)
class _Known:
    """What is known of one optimizer.

    Attributes:
        built: how it was built in this recording.
        begun: when it first stepped.
        is_older: it was built before, and has been checked.
        works: it has gradients, or is already reported.
        is_covered: it has been checked whether it lacks something that it should train.
    """

    built: _Construction | None = None
    begun: int = -1
    is_older: bool = False
    works: bool = False
    is_covered: bool = False


class OptimizerWatch:
    """The optimizers of one recording, and the parameters that they lack: those that another one trains are removed at the end.

    Attributes:
        trained: ids of parameters that have an optimizer.
        faults: key -> fault with one operand per parameter, and the ids of the parameters.
    """

    def __init__(self, state: RecordingState) -> None:
        self._state = state
        self.trained: set[int] = set()
        self.faults: dict[object, tuple[Fault, tuple[int, ...]]] = {}
        self._known: MutableMapping[torch.optim.Optimizer, _Known] = WeakIdKeyDictionary()
        self._phases: list[Any] = []
        self._all_known: bool | None = None

    def _read(self, optimizer: torch.optim.Optimizer) -> _Known:
        return self._known.setdefault(optimizer, _Known())

    def add_group(self, original: Callable[..., None], optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        """Handle `add_param_group`, which every optimizer calls for its parameters."""
        frame, state, known = sys._getframe(1), self._state, self._read(optimizer)
        if known.built is None:
            known.built = _read_construction(to_site(raw_site(frame)), user_frame(frame))
        try:
            original(optimizer, group)
        except ValueError as error:
            tensors = list(parts_of(dict(items_of(group) or ()).get("params")))
            lost = [each for each in filter(is_tensor, tensors) if not each.is_leaf]
            if not lost:
                raise
            not_a_leaf(state, error, frame, lost)
            if not state.heal:
                raise
            known.works = True
            leaves = [each if each.is_leaf else each.detach().requires_grad_() for each in tensors]
            original(optimizer, {**group, "params": leaves})
        self.mark_trained(parameters_of(optimizer))

    def before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Check an optimizer that is about to step."""
        state, frame, known = self._state, sys._getframe(1), self._read(optimizer)
        has_closure = len(args) > 1 or "closure" in kwargs
        self._phases.append(state.tracker.begin_optimizer(has_closure=has_closure))
        site = known.built.site if known.built is not None else None
        if known.begun < 0:
            known.begun = state.log.number()
        check_state(state, optimizer, site, frame, known.begun)
        self.mark_trained(parameters_of(optimizer))
        self._check_groups(optimizer, known, frame)
        if not has_closure:  # which may compute the gradients
            self.check_step(optimizer, site, frame)
        self.check_coverage(optimizer)

    def after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Note that an optimizer has stepped."""
        self._state.tracker.end_optimizer(self._phases.pop() if self._phases else (None, False))

    def _check_groups(self, optimizer: torch.optim.Optimizer, known: _Known, frame: FrameType) -> None:
        """Report parameters with a gradient that are in no group, and would be if the optimizer were built now."""
        state, mine = self._state, {id(parameter) for parameter in parameters_of(optimizer)}
        lacking, of_loss = _list_lacking(state, mine), _list_of_loss(state, mine)
        if known.is_older or not (lacking or of_loss):
            return
        built = known.built
        if built is None:  # much is looked at: once is enough
            known.is_older = True
            if not self.mark_reachable(frame):  # an older optimizer may train them without a step in the recording
                return
            built = self._find_older(optimizer, frame)
            if built.site is None:
                of_loss = []
        given = built.list_given()
        late = [(name, parameter) for name, parameter in lacking if is_among(parameter, given)]
        late = late or _list_replaced(state, optimizer, lacking)
        if late or of_loss:
            detail = MissingParameters(class_name(type(optimizer)), "" if late else "loss")
            missing = [*late, *of_loss]
            operands = tuple(describe_operand(name, parameter) for name, parameter in missing)
            fault = make_fault(state, frame, "optimizer", operands, detail=detail, birth=built.site)
            self.faults[id(optimizer)] = fault, tuple(id(parameter) for _, parameter in missing)

    def _find_older(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> _Construction:
        """Return how an optimizer was built that is older than the recording, as the source shows it."""
        frames = list(user_frames(frame))
        site = find_construction(frames, optimizer)
        if site is None or not trains_model(self._state, optimizer):
            return _Construction(site)
        return _read_construction(site, next((each for each in frames if _has_variables_of(each, site)), None))

    def mark_trained(self, parameters: Iterable[object]) -> None:
        """Note that these parameters have an optimizer."""
        self.trained.update(map(id, parameters))

    def mark_reachable(self, frame: FrameType) -> bool:
        """Mark as trained the parameters of all reachable optimizers, including those that do not step in this recording.

        Returns:
            False if there are too many objects to search.
        """
        try:
            for each in reachable_objects(frame):
                if is_optimizer(each):
                    self.mark_trained(parameters_of(each))
        except TooManyObjects:
            return False
        return True

    def write_untrained(self) -> None:
        """At the end of the recording, record the parameters that no optimizer trains."""
        for fault, ids in self.faults.values():
            left = tuple(o for o, each in zip(fault.operands, ids, strict=True) if each not in self.trained)
            needs_all = isinstance(fault.detail, MissingParameters) and fault.detail.reason == "another model"
            if left and (len(left) == len(ids) or not needs_all):
                self._state.log.log_fault(dataclasses.replace(fault, operands=left))

    def check_coverage(self, optimizer: torch.optim.Optimizer) -> None:
        """Check at the first step of an optimizer whether it lacks something that it should train."""
        state = self._state
        known = self._read(optimizer)
        if known.is_covered or not trains_model(state, optimizer):
            return
        known.is_covered = True
        for owned in unregistered_tensors(state.tracker):
            module, tensor = owned.module, owned.tensor
            leaf = tensor if is_leaf(tensor) else leaf_behind(tensor)
            if leaf is None or not module.training or not leaf.requires_grad or state.tracker.is_registered(leaf):
                continue
            if leaf is tensor and not (is_parameter(tensor) and tensor.grad is not None):
                continue
            held = owned.describe_holder()
            what: Family = "untrained" if leaf is tensor else "leaf"
            path, site, birth = held.module, held.assigned, held.assigned
            root = state.births.find_root(tensor)
            if leaf is tensor:
                path, site = _find_use(state, module, held, tensor)
            elif root is not None:
                site = to_site(root.site)
                birth = site or held.assigned
            name = f"self.{held.name}"
            operand = operand_of(tensor, name, name, stray=True, birth=birth, held=held)
            fault = state.tracker.describe_fault(what, "step", site, module=path, phase="optimizer", operands=(operand,))
            self.faults["untrained", id(leaf)] = fault, (id(leaf),)

    def check_step(self, optimizer: torch.optim.Optimizer, built: Site | None, frame: FrameType) -> None:
        """Check an optimizer before it steps.

        Args:
            optimizer: the optimizer.
            built: where it was built, if in this recording.
            frame: frame of torch's code that steps.
        """
        key, known = ("another model", id(optimizer)), self._read(optimizer)
        if known.works:
            return
        with torch_internals.DisableTorchFunction():  # function modes must not see our reads
            has_gradients = any(gradient_of(each) is not None for each in tensors_of(optimizer))
        if has_gradients or trains_model(self._state, optimizer):
            known.works = True
            self.faults.pop(key, None)
            return
        if key in self.faults or "backward" not in self._state.tracker.phases or not self._list_waiting_roots():
            return
        if self._all_known is None:  # much is looked at: once is enough
            self._all_known = self.mark_reachable(frame)
        if not self._all_known:
            return
        built = built or find_construction(user_frames(frame), optimizer)
        root = self._find_meant_root(optimizer, built)
        if root is None:
            return
        model_line = find_construction(user_frames(frame), root)
        lacking, operands = _list_with_gradients(root), []
        for name, tensor in lacking:
            held = Held("", name, "parameter", class_name(type(root)), built=model_line)
            operands.append(operand_of(tensor, name, name, stray=True, held=held))
        detail = MissingParameters(class_name(type(optimizer)), "another model")
        fault = make_fault(self._state, frame, "optimizer", tuple(operands), detail=detail, birth=built)
        self.faults[key] = fault, tuple(id(each) for _, each in lacking)

    def _list_waiting_roots(self) -> list[nn.Module]:
        """Return models with gradients, none of whose parameters are in a known optimizer."""
        roots = [root for ref in self._state.tracker.roots if (root := ref()) is not None]
        waiting = filter(_list_with_gradients, roots)
        return [root for root in waiting if self.trained.isdisjoint(id(each) for _, each in named_tensors(root, "_parameters"))]

    def _find_meant_root(self, optimizer: torch.optim.Optimizer, built: Site | None) -> nn.Module | None:
        """Return the model that an optimizer was intended for; None if unknown.

        This is a model with the same shapes. Else the line that built the optimizer must name the parameters of a model, and
        no model may be trained: if one is, another may be left out on purpose.
        """
        roots, shapes = self._list_waiting_roots(), [each.shape for each in tensors_of(optimizer)]
        for root in roots:
            if [each.shape for _, each in named_tensors(root, "_parameters")] == shapes:
                return root
        asks = built is not None and "parameters(" in built.text
        if roots and asks and len(roots) == sum(ref() is not None for ref in self._state.tracker.roots):
            return roots[0]
        return None


def not_a_leaf(state: RecordingState, error: ValueError, frame: Any, lost: list[torch.Tensor]) -> None:
    """Report that the optimizer got a tensor that a move or another operation computed."""
    names = Names(state, frame)
    expressions = [names.expression(each) or "params" for each in lost]
    operands = tuple(names.describe_stray(t, name, name, t.device) for t, name in zip(lost, expressions, strict=True))
    state.log.log_fault(make_fault(state, frame, "leaf", operands, error=error_text(error)))


def check_state(
    state: RecordingState, optimizer: torch.optim.Optimizer, built: Site | None, frame: FrameType, begun: int = sys.maxsize
) -> None:
    """Report state that was allocated before its parameter moved. Numbers, such as `step`, may stay on the CPU.

    Args:
        built: the line that built the optimizer.
        frame: frame of the code that steps.
        begun: when the optimizer first stepped. State allocated since then was left behind by a parameter that moved.
    """
    for parameter, entries, key, value in _list_stray_state(optimizer):
        born, line = state.births.find_birth(value), None
        if born is not None and _is_from(state, born, parameter):
            moved = state.births.find_birth(parameter)
            if born.number > begun and moved is not None:
                line = moved.site
        elif born is not None:
            line = born.find_root().site
        known = to_site(line) or built or find_built(state.tracker, user_frames(frame), optimizer)
        detail = StrayState(class_name(type(optimizer)), key)
        operand = describe_operand(f"state[{key!r}]", value)
        error = f"RuntimeError: {key} of a parameter on {parameter.device} is on {value.device}"
        target = device_id(parameter.device)
        fault = make_fault(state, frame, "optimizer", (operand,), error=error, detail=detail, birth=known, target=target)
        state.log.log_fault(fault)
        if state.heal:
            with state.tracker.set_cause("healed"):
                entries[key] = value.to(parameter.device)


def _list_stray_state(optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, Any, str, torch.Tensor]]:
    """Return parameter, its entries, name and tensor for each state tensor on another device than its parameter."""
    found = []
    with torch_internals.DisableTorchFunction():  # function modes must not see our reads
        for parameter, entries in items_of(dict_of(optimizer).get("state")) or ():
            if not is_tensor(parameter):
                continue
            for key, value in items_of(entries) or ():
                if type(key) is not str or not is_tensor(value) or value.device == parameter.device:
                    continue
                # A number on the CPU meets tensors on any GPU: Adam keeps `step` there, NAdam `mu_product` too.
                if key != "step" and (value.dim() or value.device.type != "cpu"):
                    found.append((parameter, entries, key, value))
    return found


def _is_from(state: RecordingState, born: Birth, parameter: torch.Tensor) -> bool:
    """Return whether state was allocated from its parameter before that moved: `zeros_like(parameter)`."""
    birth = state.births.find_birth(parameter)
    while birth is not None:
        if birth.find_root() is born.find_root():
            return True
        birth = birth.find_root().origin
    return False


def _list_lacking(state: RecordingState, mine: set[int]) -> _NamedParameters:
    """Return parameters of the model that got a gradient and are not in an optimizer."""
    with_gradient = [(path, each) for path, each in state.tracker.list_parameters() if each.grad is not None]
    return [(path, each) for path, each in with_gradient if id(each) not in mine]


def _list_replaced(state: RecordingState, optimizer: torch.optim.Optimizer, lacking: _NamedParameters) -> _NamedParameters:
    """Return the parameters of a model that took the place of those in an optimizer, which got no gradient.

    `model.fc = nn.Linear(512, 10)` leaves a weight and a bias in the optimizer that no module has. The new ones have as many
    axes, and differ at most in the length of the first.
    """
    registered = {id(each) for _, each in state.tracker.list_parameters()}
    tensors = tensors_of(optimizer)
    strangers = [each for each in tensors if id(each) not in registered]
    lost = [each for each in strangers if gradient_of(each) is None]
    if len(lost) == len(tensors) or [_form(each) for each in lost] != [_form(each) for _, each in lacking]:
        return []
    return lacking


def _form(tensor: torch.Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.dim(), tuple(tensor.shape[1:])


def _list_of_loss(state: RecordingState, mine: set[int]) -> _NamedParameters:
    """Return parameters of a module outside of the model that the loss calls. They got a gradient too."""
    lacking = []
    for module, (owner, _) in state.tracker.strangers.items():
        if owner is not None or not module.training:
            continue
        for name, parameter in named_tensors(module, "_parameters"):
            if parameter.grad is not None and id(parameter) not in mine:
                lacking.append((f"{class_name(type(module))}.{name}", parameter))
    return lacking
