"""unregistered-tensor: a module holds a tensor or a module where `.to()` cannot reach it.

Why: `Module.to` moves parameters, buffers and registered children; `self.mask = tensor` is none of them.
Bad: `self.mask = torch.tril(torch.ones(n, n))` in `__init__`.
Good: `self.register_buffer('mask', torch.tril(torch.ones(n, n)), persistent=False)`.
Source: the documentation of `torch.nn.Module.register_buffer`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.syntax import assigns_self_attribute, name_of_called, names_in, nodes_in, parsed_statement, targets_of
from devwidget.records.trace import Fault, Held, Operand, Trace
from devwidget.rules.edits import calls
from devwidget.rules.edits.attributes import is_taken, register_attribute, with_placed_attribute
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.modules import pass_device
from devwidget.rules.edits.moves_where_made import create_there
from devwidget.rules.edits.moves_where_used import move_where_used
from devwidget.rules.edits.source_file import code_at, keyword_of, root_of, uses_name
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import is_in_replica, one_target, path_of


@rule(
    "unregistered-tensor",
    "error",
    needs=("forward",),
    why=Message("`Module.to` and `parameters()` see only registered parameters, buffers and modules, not plain attributes"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each misplaced tensor that a module holds without registering it."""
    moved = {crossing.site for crossing in trace.crossings if crossing.phase in ("forward", "loss")}
    for fault in trace.faults:
        if fault.what == "parameter":
            yield _plain_tensor(fault)
        if fault.what in ("operands", "untrained"):
            for stray, held in _unregistered(fault, moved).values():
                yield _make_finding(trace, fault, stray, held)


def _plain_tensor(fault: Fault) -> Found:
    name, owner = fault.call, fault.expression
    code = f"module.{name} = nn.Parameter(tensor)"
    return Found(
        fault,
        Message("`{name}` of `{owner}` is a parameter and got a plain tensor", name=name, owner=owner),
        why=Message("a module accepts only `nn.Parameter` or None for a registered parameter"),
        fixes=[mended(fault.site, Message("assign a parameter"), _assign_parameter, fault, instead=code)],
        notes=(
            Message(
                "to keep the parameter object that an optimizer holds, copy into it: `module.{name}.data.copy_(tensor)`",
                name=name,
            ),
        ),
    )


def _assign_parameter(draft: Draft, statement: ast.stmt, fault: Fault) -> None:
    match statement:
        case ast.Assign(targets=[ast.Attribute(attr=attribute) as target], value=value) if attribute == fault.call:
            module = "nn" if uses_name(draft.code, "nn") else "torch.nn"
            text = draft.code.text(value)
            if fault.target is not None and not isinstance(value, ast.Call):
                text += f".to({draft.code.text(target)}.device)"
            draft.replace(value, f"{module}.Parameter({text})")


def _unregistered(fault: Fault, moved: set[Site | None]) -> dict[tuple[str | None, str], tuple[Operand, Held]]:
    """The misplaced tensors that modules hold without registering them, one for each attribute."""
    found: dict[tuple[str | None, str], tuple[Operand, Held]] = {}
    for operand in fault.operands:
        held = operand.held
        if held is None or held.moves_along or not operand.stray:
            continue
        if operand.from_move and operand.birth in moved:
            continue  # a line of the step moved it there before it was stored
        if held.how in ("attribute", "class attribute"):
            found.setdefault((held.module, root_of(held.name)), (operand, held))
    return found


def _make_finding(trace: Trace, fault: Fault, stray: Operand, held: Held) -> Found:
    keeps = {"owner_class": held.owner_class, "how": Message(held.how), "name": held.name}
    return Found(
        fault,
        _headline(trace, fault, stray, held),
        birth=_birth(stray, held),
        fixes=_list_fixes(trace, fault, stray, held),
        notes=(Message("`{owner_class}` stores it as a plain {how}, `{name}`", **keeps),),
    )


def _headline(trace: Trace, fault: Fault, stray: Operand, held: Held) -> Message:
    if fault.what == "untrained":
        return Message("`{path}` gets gradients, but no optimizer updates it", path=path_of(stray))
    facts = {"path": path_of(stray), "device": stray.device, "target": fault.target}
    if fault.in_replica or _is_replicated(trace, held):  # which of them fails first differs from call to call
        return Message("`{path}` is on {device} in every replica, and each replica computes on its own GPU", **facts)
    if fault.target not in held.model_devices:
        where = Message("{name} is on {device}", name=f"`{path_of(stray)}`", device=stray.device)
        return Message("{where}; the others are on {target}", where=where, target=fault.target)
    is_older = stray.birth is None or stray.birth.function in ("__init__", "<module>")
    if held.went is not None and is_older and not held.is_split and _moves_whole(held.went):
        return Message("`{path}` stayed on {device} when the model was moved to {target}", **facts)
    if len(held.model_devices) > 1:
        return Message("`{path}` is on {device}; the model has parameters or buffers on {target}", **facts)
    return Message("`{path}` is on {device}, and the model is on {target}", **facts)


def _is_replicated(trace: Trace, held: Held) -> bool:
    """Whether DataParallel copies the module that holds the tensor."""
    copied = {f"{replica.wrapper}.module".strip(".") for replica in trace.replicas}
    return any(f"{held.module}.".startswith(f"{path}.") for path in copied)


def _moves_whole(went: Site) -> bool:
    """Whether a line moved a whole module; in `__init__` it moves a part: `self.head = nn.Linear(8, 2).cuda()`."""
    return went.function != "__init__" or any(f"self.{method}(" in went.text for method in PLACING_METHODS)


def _birth(stray: Operand, held: Held) -> Site | None:
    """The line that set the attribute; the line that created the tensor if it was passed in or is inside an object.

    For modules it is always the attribute, because their tensors may be computed from others.
    """
    if held.note and held.assigned is not None:
        return held.assigned
    if _is_undecided(stray, held):
        return None
    later = held.assigned is not None and (calls.starts_empty(held.assigned.text) or _is_made_again(stray.birth, held))
    if held.assigned is None or later or "." in held.name or calls.hands_on(held.assigned.text):
        return stray.birth or held.assigned
    if stray.birth is not None and _binds(stray.birth, held.name):
        return stray.birth
    return _made_for(stray.birth, held.assigned) or held.assigned


def _is_undecided(stray: Operand, held: Held) -> bool:
    """Whether no line is known to have set the attribute: none was recorded, and several methods of its class may have."""
    return stray.birth is None and held.how == "attribute" and not held.note


def _is_made_again(birth: Site | None, held: Held) -> bool:
    """Whether a method other than `__init__` created the tensor and assigned it to the attribute."""
    at = code_at(birth)
    if birth is None or at is None or held.assigned is None:
        return False
    code, statement = at
    method = code.scope(statement)
    if not isinstance(method, ast.FunctionDef) or method.name == held.assigned.function:
        return False
    return any(assigns_self_attribute(node, held.name) for node in nodes_in(method, ast.Assign))


def _is_made_while_running(birth: Site | None) -> bool:
    """Whether `forward`, or a method that it calls and `__init__` does not, creates the tensor: after the model was moved.

    A tensor created with `device=` was on the right device then; the model has moved since.
    """
    at = code_at(birth)
    owner = at[0].owner(at[1]) if at is not None else None
    if birth is None or at is None or owner is None or any(keyword_of(each, "device") for each in at[0].calls(at[1])):
        return False
    methods = {each.name: ast.unparse(each) for each in owner.body if isinstance(each, ast.FunctionDef)}
    call = f"self.{birth.function}("
    is_called = call in methods.get("forward", "") and call not in methods.get("__init__", "")
    return birth.function == "forward" or is_called


def _binds(birth: Site, name: str) -> bool:
    """Whether a line assigns the attribute, or the item that holds the tensor."""
    statement = parsed_statement(birth.text)
    if statement is None:
        return False
    places = (f"self.{name}", f"self.{root_of(name)}")
    return any(ast.unparse(each) in places for each in targets_of(statement))


def _made_for(birth: Site | None, assigned: Site) -> Site | None:
    """The last line above `self.tables = [table.cos(), table.sin()]` that assigns a variable of the items."""
    at = code_at(assigned)
    value = getattr(at[1], "value", None) if at is not None else None
    if at is None or birth is None or birth.file != assigned.file or not isinstance(value, ast.List | ast.Dict | ast.Tuple):
        return None
    (code, statement), found = at, None
    read = set(names_in(value))
    for node in nodes_in(code.scope(statement), ast.Assign):
        is_between = birth.line <= node.lineno < assigned.line
        if is_between and read.intersection(map(ast.unparse, node.targets)):
            found = Site(birth.file, node.lineno, code.text(node), assigned.function)
    return found


def _list_fixes(trace: Trace, fault: Fault, stray: Operand, held: Held) -> Iterator[Fix | None]:
    case = Case(fault, stray, one_target(trace, fault, stray), trace)
    filled = held.assigned is not None and calls.starts_empty(held.assigned.text)
    is_split = held.is_split and not is_in_replica(trace, fault)
    if fault.what == "operands" and _is_undecided(stray, held):
        yield move_where_used(case)  # right, whichever line has set it
    if fault.what == "operands" and fault.target not in held.model_devices:
        yield pass_device(case)  # no move of the module would have taken a buffer along
    made = with_placed_attribute(create_there(case), held, fault.target) if fault.what == "operands" else None
    if made is not None and (filled or stray.birth_partners or is_split):
        yield made  # no move of the model would have taken a buffer there
    is_made_each_step = filled and _is_made_while_running(stray.birth)
    registered = None
    if not is_made_each_step and not is_split and not _came_late(fault, held):
        registered = register_attribute(held, _dtype(stray, held))
    yield registered
    yield made
    # Modules that are moved at each use are on the right device, but are not trained or saved.
    if fault.what == "operands" and not (held.note and registered):
        yield move_where_used(case)
    if held.note or "." in held.name or not (registered or is_split):
        yield from _list_registrations(held)


def _list_registrations(held: Held) -> Iterator[Fix]:
    """Fixes in words that register the attribute."""
    attribute = held.name.split("[")[0].split(".")[0]
    if held.note:
        is_dict = held.name.startswith((f"{attribute}['", f'{attribute}["'))
        if is_dict and is_taken(held):
            yield Fix(Message("register them in an nn.ModuleDict under other keys; these are names of its attributes"))
            return
        kind = "ModuleDict" if is_dict else "ModuleList"
        yield Fix(Message("register the modules"), f"self.{attribute} = nn.{kind}(self.{attribute})", "choice")
    elif "." in held.name:
        words = Message("register the tensor as a buffer, and create `{attribute}` from it in forward", attribute=attribute)
        buffer = re.sub(r"\W+", "_", held.name).strip("_")
        yield Fix(words, f"self.register_buffer({buffer!r}, self.{held.name}, persistent=False)")
    else:
        yield Fix(Message("register its contents as buffers, as an nn.ParameterList or as a module"), confidence="choice")


def _came_late(fault: Fault, held: Held) -> bool:
    """Whether the module was added to a model that had already moved, so that no line moves what it registers."""
    return fault.what == "operands" and held.module not in (None, "") and held.went is not None and _is_put_in_after(held)


def _is_put_in_after(held: Held) -> bool:
    """Whether a line below the move of the model, in the same function, assigns an object of this class to an item."""
    at = code_at(held.went)
    if at is None:
        return False
    code, went = at
    for node in ast.walk(code.scope(went)):
        match node:
            case ast.Assign(targets=[ast.Subscript() | ast.Attribute(), *_], value=ast.Call() as built):
                if built.lineno > went.lineno and name_of_called(built) == held.owner_class:
                    return True
    return False


def _dtype(stray: Operand, held: Held) -> str:
    """The dtype of the attribute; float32 if the misplaced tensor was computed from it."""
    if stray.expression.endswith(held.name):
        return stray.dtype
    return "float32"
