"""optimizer-misplaced: optimizer state is on another device than its parameters, or the optimizer has the wrong parameters.

Why: an optimizer keeps references; state that it allocates when it is built does not move with the model.
Bad: `Adagrad(model.parameters())`, then `model.cuda()` or `model.fc = nn.Linear(8, 3)`.
Good: build the optimizer after the model is complete and on its device.
Source: https://docs.pytorch.org/docs/stable/optim.html#constructing-it; pytorch#7844 (SGD and Adam survive the move).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import PLACING_METHODS, DeviceId
from devwidget.records.fault_details import MissingParameters, MissingReason, StrayState
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site, cell_label
from devwidget.records.syntax import calls_named, names_in, nodes_in, targets_of
from devwidget.records.trace import Fault, Held, Operand, Trace
from devwidget.rules.edits.calls import FACTORIES
from devwidget.rules.edits.devices import written_device
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.source_file import Code, code_at
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import right_device, some_names, strays_in


@rule("optimizer-misplaced", "error", needs=("backward", "optimizer"))
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each optimizer and problem."""
    for fault in trace.faults:
        match fault.detail:
            case StrayState():
                yield _stray_state(fault, fault.detail, _failed_on(fault, trace))
            case MissingParameters():
                yield _missing(fault, fault.detail)
    for fault, stray in strays_in(trace, "operands"):
        if stray.held is not None and stray.held.how == "optimizer state":
            yield _of_object(fault, stray, stray.held)


def _of_object(fault: Fault, stray: Operand, held: Held) -> Found:
    """The optimizer keeps its state in an object, and its step failed because of that state."""
    return Found(
        fault,
        _keeps(held.owner_class, held.name, stray.device, fault),
        why=Message("neither `model.to` nor `load_state_dict` moves a tensor inside an object of the optimizer state"),
        birth=stray.birth,
        fixes=_moved_there(fault, stray, held),
        cause=f"{held.owner_class} {held.name}",
    )


def _moved_there(fault: Fault, stray: Operand, held: Held) -> Iterator[Fix | None]:
    """Move the state on the line before the failing one, or load the checkpoint to the right device."""
    if _is_in_init(stray):
        yield mended(stray.birth, _AFTER_MOVING, _where_built, fault, held.owner_class)
    at_hand = fault.nearby.at_hand
    device = f"{at_hand[0]}.device" if at_hand else right_device(fault)
    words = Message("move the state to its parameters")
    code = f"{stray.expression} = {stray.expression}.to({device})"
    if stray.expression:
        yield mended(fault.site, words, Draft.insert_above, code, instead="")
    yield Fix(
        Message("load the checkpoint onto the device of the parameters"),
        f"torch.load(path, map_location={str(fault.target)!r})",
    )


def _is_in_init(stray: Operand) -> bool:
    at = code_at(stray.birth, stray.birth_call)
    return at is not None and getattr(at[0].scope(at[1]), "name", "") == "__init__"


def _failed_on(fault: Fault, trace: Trace) -> list[int]:
    """Numbers of the faults of the same step at such a state: kernels get lists, in which it has no name."""
    states = {_kind_of_tensor(each) for each in fault.operands}
    numbers = []
    for other in trace.faults:
        if (other.what, other.phase, other.site) != ("operands", "optimizer", fault.site):
            continue
        if any(each.stray and _kind_of_tensor(each) in states for each in other.operands):
            numbers.append(other.number)
    return numbers


def _kind_of_tensor(operand: Operand) -> tuple[object, ...]:
    return operand.shape, operand.dtype, operand.device


def _stray_state(fault: Fault, state: StrayState, kernels: list[int]) -> Found:
    optimizer = state.optimizer
    return Found(
        fault.site,
        _keeps(optimizer, state.state, fault.operands[0].device, fault),
        why=Message("an optimizer allocates its state when it is built or at its first step; it does not move with the model"),
        birth=fault.birth or fault.site,
        fixes=_list_state_fixes(fault, optimizer),
        operands=fault.operands[:4],
        explains=(fault.number, *kernels),
        cause=f"{optimizer} state {fault.birth or fault.site}",
    )


def _missing(fault: Fault, missing: MissingParameters) -> Found:
    held, notes = fault.operands[0].held, []
    made = held.built if held is not None else None
    if missing.reason == "another model" and made is not None:
        notes.append(Message("the model was created at {place}: {text}", place=made, text=made.text))
    return Found(
        fault.site,
        _lacks(fault, missing),
        why=_OTHERS if missing.reason == "another model" else _BUILT_WITH,
        birth=fault.birth,
        fixes=_list_fixes(fault, missing.reason, made),
        operands=fault.operands[:4],
        notes=notes,
        explains=(fault.number,),
        cause=f"{missing.optimizer} missing {fault.birth or fault.site}",
    )


_AFTER_MOVING = Message("build the optimizer after moving the model")
_AFTER_MODEL = Message("build the optimizer after the last change of the model")
_BUILT_WITH = Message("an optimizer updates only the trainable parameters that it was built with")
_OTHERS = Message("the optimizer updates other parameters, which get no gradients, so the model does not change")


def _keeps(optimizer: str, state: str, device: DeviceId, fault: Fault) -> Message:
    facts = {"optimizer": optimizer, "state": state, "device": device, "target": fault.target}
    return Message("`{optimizer}` keeps `{state}` on {device} for parameters on {target}", **facts)


def _lacks(fault: Fault, missing: MissingParameters) -> Message:
    optimizer = missing.optimizer
    if missing.reason == "another model":
        model = f"`{fault.model_name}`" if fault.model_name else Message("the model")
        return Message(
            "`{optimizer}` has none of the parameters of {model}, which received gradients", optimizer=optimizer, model=model
        )
    unknown = some_names([each.expression for each in fault.operands])
    return Message(
        "`{optimizer}` has no parameter group with {missing}, which received gradients", optimizer=optimizer, missing=unknown
    )


def _list_state_fixes(fault: Fault, optimizer: str) -> Iterator[Fix | None]:
    words = Message("move the state to its parameters")
    yield mended(fault.birth, words, _state_there, fault)
    if optimizer in _LAZY:
        yield mended(fault.birth, words, _along_with_the_model, optimizer)
        yield mended(fault.site, words, _before_the_step)
        return
    yield mended(fault.birth, _AFTER_MOVING, _after_the_move, fault)
    move = f"{fault.model_name or 'model'}.to({str(fault.target)!r})"
    yield mended(fault.site, _AFTER_MOVING, _where_built, fault, optimizer, instead=move)


def _list_fixes(fault: Fault, reason: MissingReason, made: Site | None) -> Iterator[Fix | None]:
    if reason == "another model":
        yield from _built_after_the_model(fault, made)
        return
    owner = fault.model_name or "model"
    if reason == "loss":
        words, owner = Message("pass it the parameters of the loss too"), "criterion"
        yield mended(fault.birth, words, _with_the_loss, fault.operands[0].expression)
    else:
        yield mended(fault.birth, _AFTER_MODEL, _move_below_last_need, instead="")
    added = f"optimizer.add_param_group({{'params': {owner}.parameters()}})"
    yield Fix(Message("add a parameter group"), added, "choice")


def _built_after_the_model(fault: Fault, made: Site | None) -> Iterator[Fix | None]:
    """Move the optimizer's line below the model's line, or run its cell again."""
    built = fault.birth
    words = _AFTER_MODEL
    yield mended(built, words, _move_below, built, made)
    if built is not None and cell_label(built.file):
        words = Message("run the optimizer's cell again after the model's cell")
    yield Fix(words, built.text if built is not None else "")


def _with_the_loss(draft: Draft, statement: ast.stmt, missing: str) -> None:
    """`SGD(model.parameters())` becomes `SGD([*model.parameters(), *head.parameters()])`, if `head` exists by then."""
    built = _assignments_of(draft.code.scope(statement), missing.partition(".")[0])
    owner = ast.unparse(built[0].targets[0]) if built else ""
    if owner not in draft.code.bound(statement):
        return
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".parameters"):
            draft.replace(node, f"[*{draft.code.text(node)}, *{owner}.parameters()]")
            return


def _after_the_move(draft: Draft, statement: ast.stmt, fault: Fault) -> None:
    """Move the model above the line that passes its parameters to the optimizer."""
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
            device = written_device(draft.code, statement, fault.target)
            draft.insert_above(statement, f"{draft.code.text(node.value)}.to({device})")
            return


def _where_built(draft: Draft, _: ast.stmt, fault: Fault, kind: str) -> None:
    """Like `_after_the_move`, for state created in the class of an optimizer that one line of the file builds."""
    built = _assignments_of(draft.code.tree, kind)
    if len(built) == 1:
        _after_the_move(draft, built[0], fault)


def _assignments_of(scope: ast.AST, kind: str) -> list[ast.Assign]:
    """`head = ArcFace(8, 2).to(device)` for a class."""
    nodes = nodes_in(scope, ast.Assign)
    return [node for node in nodes if any(calls_named(ast.walk(node.value), kind))]


_LAZY = frozenset({"Adadelta", "Adam", "AdamW", "Adamax", "LBFGS", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam"})
"""Optimizers of torch that allocate their state at their first step, on the device of the parameters."""


def _before_the_step(draft: Draft, statement: ast.stmt) -> None:
    """Move the state to its parameters just above `optimizer.step()` or `scaler.step(optimizer)`."""
    for node in draft.code.parts(statement):
        match node:
            case ast.Call(func=ast.Attribute(attr="step", value=owner), args=arguments):
                if arguments and not _is_closure(draft.code, arguments[0]):
                    owner = arguments[0]
                draft.insert_above(statement, _state_moved(draft.code.text(owner)))
                return


def _along_with_the_model(draft: Draft, statement: ast.stmt, kind: str) -> None:
    """Move the state below the line that moves the model, if the one optimizer of the function has a name."""
    if not isinstance(statement, ast.Expr | ast.Assign):
        return
    moves = any(isinstance(part, ast.Attribute) and part.attr in PLACING_METHODS for part in draft.code.parts(statement))
    assignments = _assignments_of(draft.code.scope(statement), kind)
    match [each for each in assignments if each.lineno < statement.lineno]:
        case [ast.Assign(targets=[ast.Name(id=owner), *_])] if moves:
            draft.insert_below(statement, _state_moved(owner))


def _state_moved(owner: str) -> str:
    moved = "{key: value.to(parameter.device) for key, value in kept.items() if key != 'step' and hasattr(value, 'to')}"
    return f"for parameter, kept in {owner}.state.items():\n    kept.update({moved})"


def _is_closure(code: Code, argument: ast.expr) -> bool:
    """Whether the argument of `step` is a closure, as for LBFGS, and not an optimizer, as for a gradient scaler."""
    names = {each.name for each in nodes_in(code.tree, ast.FunctionDef)}
    return isinstance(argument, ast.Lambda | ast.Constant) or ast.unparse(argument).rpartition(".")[2] in names


def _state_there(draft: Draft, statement: ast.stmt, fault: Fault) -> None:
    """Pass the device of the parameter to the factories on the state's line."""
    for node in calls_named(draft.code.parts(statement), *FACTORIES):
        if not _is_step(draft, node):
            shaped = [each.value for each in nodes_in(node, ast.Attribute) if each.attr == "shape"]
            if shaped:
                device = f"{draft.code.text(shaped[0])}.device"
            else:
                device = repr(str(fault.target))
            draft.keyword(node, "device", device)


def _is_step(draft: Draft, node: ast.Call) -> bool:
    """`{'step': torch.tensor(10.)}` may stay on the CPU."""
    around = draft.code.parents.get(node)
    if not isinstance(around, ast.Dict):
        return False
    for key, value in zip(around.keys, around.values, strict=True):
        if value is node:
            return isinstance(key, ast.Constant) and key.value == "step"
    return False


def _move_below(draft: Draft, statement: ast.stmt, built: Site, made: Site | None) -> None:
    """Like `_move_below_last_need`, if the line at `made`, which creates the objects, is between the two."""
    user = _find_user(draft.code, statement)
    if made is not None and made.file == built.file and user is not None and built.line < made.line < user.lineno:
        _move_below_last_need(draft, statement)


def _find_user(code: Code, statement: ast.stmt) -> ast.stmt | None:
    """The first later statement of the block that uses what a statement assigns; None if it is the next one."""
    names = {ast.unparse(target) for target in targets_of(statement)}
    for position, later in enumerate(_statements_below(code, statement)):
        if not names.isdisjoint(names_in(later)):
            return later if position > 0 else None
    return None


def _statements_below(code: Code, statement: ast.stmt) -> list[ast.stmt]:
    around = code.parents.get(statement)
    for block in (getattr(around, "body", []), getattr(around, "orelse", [])):
        if statement in block:
            return block[block.index(statement) + 1 :]
    return []


def _move_below_last_need(draft: Draft, statement: ast.stmt) -> None:
    """Move the line down to just above the first statement of its block that uses what it assigns."""
    user = _find_user(draft.code, statement)
    if user is None:
        return
    draft.remove(statement)
    draft.insert_above(user, "\n".join(draft.code.rows[statement.lineno - 1 : statement.end_lineno]).strip())
