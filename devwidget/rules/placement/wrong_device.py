"""wrong-device: an operation got tensors on devices that it cannot mix.

Why: all inputs of an op must be on one device; PyTorch does not move them.
Bad: `h0 = torch.zeros(1, batch, width)` in a `forward` whose input is on a GPU.
Good: `h0 = torch.zeros(1, batch, width, device=x.device)`.
Source: `Expected all tensors to be on the same device`, TensorIterator and the device checks of native_functions.yaml.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from devwidget.records.device import DeviceId
from devwidget.records.fault_details import Compared, HookBypassed
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message, listed
from devwidget.records.site import Site
from devwidget.records.syntax import calls_named, nodes_in
from devwidget.records.trace import Fault, Held, Operand, Trace
from devwidget.rules.edits.candidates import parameter_candidates, tensor_candidates
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.copies import copy_moved, is_moved_away, move_back
from devwidget.rules.edits.devices import written_device
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.modules import build_there, built_at
from devwidget.rules.edits.moves_where_used import move_where_used
from devwidget.rules.edits.source_file import keyword_of
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
        "replica-state-lost",
    ),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each fault of operands; the registry merges equal causes."""
    for fault, stray in strays_in(trace, "operands"):
        yield Found(
            fault,
            _headline(fault, stray),
            why=_why(fault),
            birth=_birth(stray),
            fixes=_list_fixes(Case(fault, stray, one_target(trace, fault, stray), trace)),
            notes=_notes(fault, stray),
            cause=_cause(fault, stray),
        )


def _notes(fault: Fault, stray: Operand) -> Iterator[Message]:
    yield _whereabouts(fault, stray)
    if isinstance(fault.detail, HookBypassed):
        facts = {"owner": fault.detail.owner, "method": fault.detail.method}
        yield Message("hooks of `{owner}` move tensors only in `forward`; `{method}` ran without them", **facts)
    if stray.forgotten is not None:
        facts = {"method": stray.forgotten.function, "place": str(stray.forgotten), "name": name_of(fault, stray)}
        yield Message("`{method}` of its object, at {place}, does not move {name}", **facts)
    library = fault.nearby.library
    if library is not None:
        facts = {"function": library.function, "place": str(library.site), "device": library.default}
        yield Message("`{function}`, called at {place}, uses its default device, {device}", **facts)
    if stray.listed is not None:
        yield Message("appended at {place}: {text}", place=str(stray.listed), text=stray.listed.text)


def _birth(stray: Operand) -> Site | None:
    """The line that decided the device; for a module that was never moved, the line that built it."""
    held = stray.held
    if held is None or held.how not in ("parameter", "buffer") or stray.from_move or stray.birth_op == "load":
        return stray.birth
    if built_at(held) is None:
        return stray.birth
    return held.built


def _cause(fault: Fault, stray: Operand) -> str:
    """What several faults have in common: the module left behind, the loader that pins, the field of an argument."""
    if fault.call == "pin_memory":
        return f"pinned at {fault.site}"
    if stray.field and stray.birth is None and fault.site is not None:
        return f"from the {stray.field}"
    if stray.held and stray.held.left_behind is not None:
        return f"left behind: {stray.held.left_behind}"
    return ""


def _headline(fault: Fault, stray: Operand) -> Message:
    devices = listed(map(str, devices_met(fault)))
    if not _alone(fault):
        return Message("`{call}` got tensors on {devices}", call=fault.call, devices=devices)
    kind = Message("generator") if stray.argument == "generator" else Message("tensor")
    facts = {"call": fault.call, "kind": kind, "devices": devices, "target": fault.target}
    return Message("`{call}` got a {kind} on {devices} but requires one on {target}", **facts)


def _alone(fault: Fault) -> bool:
    """Whether none of the known tensors of the call is on the device that it requires."""
    return all(operand.device != fault.target for operand in fault.operands)


def _demands(fault: Fault) -> bool:
    """Whether the call itself requires that device, not the device of other tensors, which may be freed by now."""
    return _alone(fault) and "Expected all tensors" not in fault.error


def _why(fault: Fault) -> str:
    if isinstance(fault.detail, Compared):
        return Message("the program checks here that its tensors are on one device, and they are not")
    if _demands(fault):
        return Message("`{call}` requires it on {target}; PyTorch does not move it", call=fault.call, target=fault.target)
    return Message("all inputs of an op must be on one device; PyTorch does not move them")


def _whereabouts(fault: Fault, stray: Operand) -> Message:
    """Where the tensor is, how it got there, and where the other tensors are."""
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
        return Message("{name} was created on {device}", name=name, device=device)
    if stray.field:
        field = Message(stray.field)
        return Message("{name} is on {device} and comes from the {field}", name=name, device=device, field=field)
    return Message("{name} is on {device} (the line that put it there was not recorded)", name=name, device=device)


def _list_fixes(case: Case) -> Iterator[Fix | None]:
    fault, stray = case.fault, case.stray
    if stray.held is not None and stray.held.how in ("parameter", "buffer"):
        if isinstance(fault.detail, HookBypassed):  # a hook would move the weights back
            yield Fix(Message("call the module itself: its hooks move its weights"), confidence="choice")
            return
        yield from _list_moves_of_module(case, stray.held)
        return
    if stray.argument == "generator":
        words = Message("create the generator on the device of the random numbers")
        generator = f"torch.Generator(device={str(fault.target)!r})"
        yield mended(stray.birth, words, _place_generator, fault.target)
        if not stray.expression:
            yield mended(fault.site, words, _give_loader, generator)
        yield Fix(words, generator)
        return
    if fault.call == "pin_memory":
        words = Message("remove pin_memory: only CPU memory can be pinned")
        yield mended(fault.site, words, _unpin)
        yield Fix(words)
        return
    if stray.held is not None and stray.held.moves_along:
        yield from _move_the_owner(case, stray.held)
    yield from tensor_candidates(case)
    name = stray.expression or stray.source
    facts = {"name": name or stray.argument, "call": fault.call}
    words = Message("move `{name}` to the device of the others before `{call}`", **facts)  # a block may run on two devices
    if case.literal and fault.target is not None:
        words = Message("move `{name}` to the device {device} before `{call}`", device=fault.target, **facts)
    device = right_device(fault)
    is_right = case.literal or device.endswith(".device")  # no device by its name where two are needed
    yield Fix(words, f"{name}.to({device})" if name and is_right else "")


def _list_moves_of_module(case: Case, held: Held) -> Iterator[Fix | None]:
    fault = case.fault
    is_away = held.moved_away or is_moved_away(case.trace, case.stray.birth, fault.target)
    if held.left_behind is None or not is_away:
        yield from parameter_candidates(case)
        yield from _describe_moves(case, held)
        return
    yield copy_moved(case.stray.birth, fault.model_name)
    if held.left_behind == "":
        yield move_back(fault)
    if case.is_between_gpus:  # the move may be intended: peft shares weights between layers of two GPUs
        yield move_where_used(case)
    yield Fix(Message("move it back before it is used"), f"{_spell_module(fault, held.left_behind)}.to({str(fault.target)!r})")


def _spell_module(fault: Fault, path: str | None) -> str:
    """`model.get_submodule('head')`."""
    model = fault.model_name or "model"
    if path:
        return f"{model}.get_submodule({path!r})"
    return model


def _describe_moves(case: Case, held: Held) -> Iterator[Fix]:
    """Fixes in words for a module on another device."""
    fault, target, path = case.fault, str(case.fault.target), held.left_behind
    if path is None:
        words = Message("move its module with all parameters and buffers")
        yield Fix(words, f"{_spell_module(fault, held.module)}.to({target!r})")
        return
    model = _spell_module(fault, "")
    yield Fix(Message("move the model to its inputs' device after adding its last layer"), f"{model}.to({target!r})")
    if path == "" and case.literal:
        yield Fix(Message("move the existing model"), f"{model}.to({target!r})", "choice")
    if path and not held.left_root:  # not for separate models
        yield Fix(Message("move only this module"), f"{_spell_module(fault, path)}.to({target!r})", "choice")
    for operand in fault.operands:
        if operand.expression.isidentifier() and not operand.stray:
            away = case.stray.device
            words = Message("keep the module on {device} and move the data to it", device=away)
            yield Fix(words, f"{operand.expression} = {operand.expression}.to({str(away)!r})", "choice")
            return


def _unpin(draft: Draft, statement: ast.stmt) -> None:
    """Remove `.pin_memory()` from the failing line; for a loader, set the one `pin_memory=True` of the file to False."""
    for call in calls_named(draft.code.parts(statement), "pin_memory"):
        draft.drop_method(call)
        return
    asked = [node for node in nodes_in(draft.code.tree, ast.keyword) if node.arg == "pin_memory"]
    if len(asked) == 1:
        draft.replace(asked[0].value, "False")


def _move_the_owner(case: Case, held: Held) -> Iterator[Fix | None]:
    """Move a metric that was never moved: it keeps its state in attributes, which its own `_apply` moves."""
    whole = held.left_class or held.owner_class
    yield build_there(case, dataclasses.replace(held, left_behind=held.module, left_class=whole))
    owner = _spell_module(case.fault, held.module) if held.module is not None else held.name.rpartition(".")[0]
    words = Message("move `{name}`, whose `_apply` also moves its tensors", name=held.owner_class)
    yield Fix(words, f"{owner}.to({str(case.fault.target)!r})")


def _place_generator(draft: Draft, statement: ast.stmt, target: DeviceId | None) -> None:
    """Add the device of the random numbers to the `torch.Generator()` call."""
    for call in calls_named(draft.code.parts(statement), "Generator"):
        draft.keyword(call, "device", written_device(draft.code, statement, target))


def _give_loader(draft: Draft, _: ast.stmt, generator: str) -> None:
    """Pass a generator to the loader: one that shuffles creates its own on the CPU, whatever the default device is."""
    match list(calls_named(ast.walk(draft.code.tree), "DataLoader")):
        case [loader] if keyword_of(loader, "generator") is None:
            draft.keyword(loader, "generator", generator)
