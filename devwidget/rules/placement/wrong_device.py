"""wrong-device: an operation received tensors on devices that it cannot mix.

Why: a kernel runs on one device, and operands are not copied for you.
Bad: `h0 = torch.zeros(1, batch, width)` in a `forward` whose input is on a GPU.
Good: `h0 = torch.zeros(1, batch, width, device=x.device)`.
Source: `Expected all tensors to be on the same device`, TensorIterator and the device checks of native_functions.yaml.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from devwidget.records.fault_details import Compared
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message, listed
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Held, Operand, Trace
from devwidget.rules.edits.copies import copy_moved, is_moved_away
from devwidget.rules.edits.devices import device_for
from devwidget.rules.edits.draft import Draft, fix, mended, read_to
from devwidget.rules.edits.modules import buffers_too, built_at, owner_built, owner_told, where_built
from devwidget.rules.edits.moves_left_out import left_in_forward, without_move
from devwidget.rules.edits.moves_on_entry import in_the_loop, on_entry, to_the_module, where_handed_out
from devwidget.rules.edits.moves_where_made import (
    beside_what_is_kept,
    from_helper,
    is_right_elsewhere,
    moved_there,
    value_moved,
    where_made,
)
from devwidget.rules.edits.moves_where_used import where_used
from devwidget.rules.edits.refusals import refused
from devwidget.rules.edits.source_file import code_at
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import devices_met, kept_name_of, name_of, one_target, right_device, strays_in


@rule(
    "wrong-device",
    "error",
    needs=("operations",),
    loses_to=(
        "unregistered-tensor",
        "unassigned-move",
        "parallel-misplaced",
        "split-tied-weights",
        "meta-tensor",
        "optimizer-misplaced",
        "parallel-io",
    ),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each fault of operands; the registry folds equal causes."""
    for fault, stray in strays_in(trace, "operands"):
        yield _make_finding(trace, fault, stray, literal=one_target(trace, fault, stray))


def _make_finding(trace: Trace, fault: Fault, stray: Operand, *, literal: bool) -> Found:
    return Found(
        fault,
        _headline(fault, stray),
        why=_why(fault),
        birth=_birth(stray),
        fixes=_list_fixes(trace, fault, stray, literal=literal),
        notes=(_whereabouts(fault, stray),),
        cause=_cause(fault, stray),
    )


def _birth(stray: Operand) -> Site | None:
    """The line that decided where it is: of a module that nobody moved the one that built it, not one of its class."""
    kept = stray.held is not None and stray.held.how in ("parameter", "buffer") and stray.birth_op != "load"
    held = stray.held if kept and not stray.from_move else None
    if held is not None and built_at(held) is not None:
        return held.built
    return stray.birth


def _cause(fault: Fault, stray: Operand) -> str:
    """What several faults have in common: the module that was left behind, the loader that pins, a name that was given."""
    if fault.call == "pin_memory":
        return f"pinned at {fault.site}"
    if stray.field and stray.birth is None and fault.site is not None:
        return f"{stray.expression} from the {stray.field} in {fault.site.function} of {fault.site.file}"
    if stray.held and stray.held.left_behind is not None:
        return f"left behind: {stray.held.left_behind}"
    return ""


def _headline(fault: Fault, stray: Operand) -> Message:
    call, target = fault.call, fault.target
    if stray.argument == "generator":
        facts = {"call": call, "devices": stray.device, "target": target}
        return Message("`{call}` was given a generator on {devices} where it needs one on {target}", **facts)
    devices = listed(map(str, devices_met(fault)))
    if _alone(fault):
        facts = {"call": call, "devices": devices, "target": target}
        return Message("`{call}` was given a tensor on {devices} where it needs one on {target}", **facts)
    return Message("`{call}` was given tensors from {devices}", call=call, devices=devices)


def _alone(fault: Fault) -> bool:
    """Whether none of the tensors of the call, as far as they are known, is where it needs them."""
    return all(operand.device != fault.target for operand in fault.operands)


def _demands(fault: Fault) -> bool:
    """Whether the call itself wants that device: torch speaks of no others, which may be gone since."""
    return _alone(fault) and "Expected all tensors" not in fault.error


def _why(fault: Fault) -> str:
    if isinstance(fault.detail, Compared):
        return Message("the program asks for one device itself here, and ends where it finds two")
    if _demands(fault):
        return Message(
            "`{call}` works with it on {target} alone, and it is not copied for you", call=fault.call, target=fault.target
        )
    return Message("a kernel runs on one device, and operands are not copied for you")


def _whereabouts(fault: Fault, stray: Operand) -> Message:
    """Where the tensor is, how it came there, and where the others are."""
    where = _where(fault, stray)
    if fault.target is None or _demands(fault):
        return where
    return Message("{where}; the others are on {target}", where=where, target=fault.target)


def _where(fault: Fault, stray: Operand) -> Message:
    device = stray.device
    if stray.held is not None and stray.held.how in ("parameter", "buffer"):
        if stray.held.left_behind == "":
            return Message("the whole model is on {device}", device=device)
        return Message("{name} is on {device}", name=kept_name_of(fault, stray), device=device)
    name = name_of(fault, stray)
    if stray.birth is not None and stray.from_move:
        return Message("{name} was moved to {device}", name=name, device=device)
    if stray.birth is not None:
        return Message("{name} was made on {device}", name=name, device=device)
    if stray.field:
        field = Message(stray.field)
        return Message("{name} is on {device}, and comes from the {field}", name=name, device=device, field=field)
    return Message("{name} is on {device}, and no line seen here put it there", name=name, device=device)


def _list_fixes(trace: Trace, fault: Fault, stray: Operand, *, literal: bool) -> Iterator[Fix | None]:
    if stray.held is not None and stray.held.how in ("parameter", "buffer"):
        if stray.held.left_behind is not None and is_moved_away(trace, stray.birth, fault.target):
            yield copy_moved(stray.birth, fault.model_name)
            if _is_between_gpus(fault, stray):  # who moved it may need it there: peft shares weights between layers of two GPUs
                yield where_used(fault, [each for each in fault.operands if each.stray], literal=literal)
            yield _move_back(fault, stray.held.left_behind)
            return
        yield from _move_the_module(fault, stray, literal=literal)
        return
    if stray.held is not None and stray.held.moves_along:
        yield from _move_the_owner(fault, stray, stray.held)
    if stray.argument == "generator":
        yield _generator(fault, stray)
        yield Fix(
            Message("make the generator on the device of the numbers"), f"torch.Generator(device={str(fault.target)!r})", "sure"
        )
        return
    if fault.call == "pin_memory":
        yield _unpinned(fault)
        yield Fix(Message("only memory of the host is pinned: leave it out where the tensors are on a GPU"))
        return
    yield left_in_forward(fault, stray)
    yield _left_there(trace, fault, stray)
    if literal:
        yield owner_built(fault, stray)
        yield owner_told(fault, stray)
        yield in_the_loop(fault, stray)
        yield where_handed_out(fault, stray)
    use = where_used(fault, [o for o in fault.operands if o.stray], literal=literal)
    if stray.from_move:
        made = None
    else:
        made = where_made(fault, stray, literal=literal)
    elsewhere = is_right_elsewhere(fault, stray)
    yield made if str(fault.target) != "cpu" and not elsewhere else None
    if str(fault.target) != "cpu" and not elsewhere:
        moved = moved_there(fault, stray)
    else:
        moved = None
    yield moved if stray.device.is_accelerator else None  # what goes to the host may be meant to stay there
    yield _new_module(fault, stray) if literal else None
    yield to_the_module(stray)
    yield use
    yield on_entry(fault, stray)
    yield moved
    yield from_helper(fault, stray) if stray.birth is None else None
    if fault.nearby.taken is not None:
        called = fault.nearby.taken.called
    else:
        called = None
    too_late = _same_line(stray.birth, fault.site) or _same_line(stray.birth, called)
    if literal and (stray.from_move or not elsewhere) and not too_late:
        yield value_moved(stray, device_for(stray.birth, fault.target))
    device = right_device(fault)
    name = stray.expression or stray.source
    yield beside_what_is_kept(fault, stray)
    told = Message("move `{name}` to the device of the others before `{call}`", name=name or stray.argument, call=fault.call)
    yield Fix(told, f"{name}.to({device})" if name else "")


def _left_there(trace: Trace, fault: Fault, stray: Operand) -> Fix | None:
    """What a line of the step takes away, and nothing computes with where it goes, stays where it was."""
    away = (each for each in trace.crossings if each.site == stray.birth and each.target == stray.device)
    crossed = list(away) if stray.from_move else []
    in_loop = _has_common_loop(stray.birth, fault.site)  # its first turn moves it before the first step
    of_step = all(each.step >= 0 or in_loop for each in crossed)
    needless = of_step and all(each.source == fault.target and not (each.computed or each.meant) for each in crossed)
    if crossed and needless:
        return without_move(stray.birth, stray.device, Message("stay on the device"))
    return None


def _has_common_loop(one: Site | None, other: Site | None) -> bool:
    places = [code_at(one), code_at(other)]
    loops = [[each for each in at[0].around(at[1]) if isinstance(each, ast.For | ast.While)] for at in places if at is not None]
    return len(loops) == 2 and any(each in loops[1] for each in loops[0])


def _same_line(birth: Site | None, fault: Site | None) -> bool:
    return birth is not None and fault is not None and (birth.file, birth.line) == (fault.file, fault.line)


def _unpinned(fault: Fault) -> Fix | None:
    """`x.pin_memory()` of the failing line is left out."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        for node in draft.code.parts(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pin_memory":
                draft.replace(node, draft.code.text(node.func.value))

    return mended(fault.site, Message("leave out pin_memory"), change)


def _move_the_owner(fault: Fault, stray: Operand, held: Held) -> Iterator[Fix | None]:
    """A metric keeps its state in attributes, which its own `_apply` moves: it was never moved itself."""
    if held.module is not None:
        model = fault.model_name or "model"
    else:
        model = held.name.rpartition(".")[0]
    if held.module:
        owner = f"{model}.get_submodule({held.module!r})"
    else:
        owner = model
    whole = held.left_class or held.owner_class
    yield from where_built(fault, stray, dataclasses.replace(held, left_behind=held.module, left_class=whole))
    told = Message("move `{name}`, whose own `_apply` takes its tensors along", name=held.owner_class)
    yield Fix(told, f"{owner}.to({str(fault.target)!r})")


def _new_module(fault: Fault, stray: Operand) -> Fix | None:
    """`nn.Linear(6, 2)(x)` makes the layer and calls it: the weights that have no name are those of the layer."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        for call in draft.code.alike(statement, fault.expression):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Call):
                draft.append(call.func, f".to({device_for(fault.site, fault.target)})")

    unnamed = not stray.expression and not stray.source
    if unnamed:
        return mended(fault.site, Message("move the module that is made there"), change)
    return None


def _generator(fault: Fault, stray: Operand) -> Fix | None:
    """`torch.Generator()` on the line that made it, with the device of the numbers."""
    at = code_at(stray.birth, stray.birth_call)
    if at is None:
        return None
    draft = Draft(at[0])
    for node in at[0].parts(at[1]):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Generator"):
            draft.keyword(node, "device", device_for(stray.birth, fault.target))
    return fix(Message("make the generator on the device of the numbers"), draft, "sure")


def _names_a_tensor(made: Fix | None, fault: Fault) -> bool:
    """Whether an edit takes the device from what is at hand there, and writes none of its own."""
    return made is not None and repr(str(fault.target)) not in made.code


def _is_between_gpus(fault: Fault, stray: Operand) -> bool:
    return stray.device.is_accelerator and fault.target is not None and fault.target.is_accelerator


def _move_back(fault: Fault, path: str) -> Fix:
    """It had been where it is used: building it elsewhere mends nothing."""
    model = fault.model_name or "model"
    if path:
        moved = f"{model}.get_submodule({path!r})"
    else:
        moved = model
    return Fix(Message("move it back before it is used"), f"{moved}.to({str(fault.target)!r})")


def _move_the_module(fault: Fault, stray: Operand, *, literal: bool) -> Iterator[Fix | None]:
    """The stray is a parameter: its module, or the whole model, is not where its inputs are."""
    held, model, target = stray.held, fault.model_name or "model", str(fault.target)
    if stray.birth_op == "load" and literal:
        words = Message("read the checkpoint to where the parameters are")
        yield mended(
            stray.birth, words, lambda draft, statement: read_to(draft, statement, device_for(stray.birth, fault.target))
        )
        held = None  # building it elsewhere mends nothing
    use = [o for o in fault.operands if o.stray]
    if held is not None and held.left_behind is None:  # its module is elsewhere, this one alone is not
        made = where_made(fault, stray, literal=literal)
        yield made if held.how == "parameter" and _names_a_tensor(made, fault) else None  # else it is copied at each use
        yield buffers_too(fault, stray)
        yield where_used(fault, use, literal=literal)
        yield made
        if held.module:
            owner = f"{model}.get_submodule({held.module!r})"
        else:
            owner = model
        yield Fix(Message("move its module with all that it holds, parameters and buffers"), f"{owner}.to({target!r})")
        return
    if _is_between_gpus(fault, stray):
        yield where_used(fault, use, literal=literal)  # a model that is split on purpose
    if held is not None and literal:
        built = [each for each in where_built(fault, stray, held) if each is not None and not refused(each, fault)]
        yield from built
        if built:
            use = []  # a part of the model that `forward` moves leaves the rest where it is
        # A parameter that was put into a module which has moved was made by the line of its values.
        yield where_made(fault, stray, literal=True) if held.how == "buffer" or not built else None
        yield value_moved(stray, device_for(stray.birth, fault.target)) if not built else None
    if use and not stray.expression.isidentifier():  # what `forward` calls by one name is not the parameter itself
        yield where_used(fault, use, literal=literal)
    yield Fix(Message("move the model to its inputs' device, after its last layer is in place"), f"{model}.to({target!r})")
    path = held.left_behind if held is not None else None
    if path == "" and literal:
        yield Fix(Message("move the model that is there now"), f"{model}.to({target!r})", "choice")
    if path and held is not None and not held.left_root:  # of several models, which are no parts of one
        yield Fix(Message("move this module alone"), f"{model}.get_submodule({path!r}).to({target!r})", "choice")
    other = next((o for o in fault.operands if not o.stray and o.expression.isidentifier()), None)
    if other is not None:
        yield Fix(
            Message("keep the module on {device} and move the data to it", device=stray.device),
            f"{other.expression} = {other.expression}.to({str(stray.device)!r})",
            "choice",
        )
