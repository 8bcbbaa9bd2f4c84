"""invalid-device: a device that this machine does not have, or that this build of torch cannot use.

Why: torch names a device by type (`cuda`, `mps`, `cpu`) and by its index among the *visible* devices.
Bad: `model.to('gpu')`; `torch.device('cuda:2')` with `CUDA_VISIBLE_DEVICES=2,3`, which renumbers the GPUs as 0 and 1.
Good: `device = 'cuda' if torch.cuda.is_available() else 'cpu'`, then `model.to(device)`.
Source: the documentation of `torch.device`, and of CUDA_VISIBLE_DEVICES in the CUDA programming guide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import CUDA, CURRENT_SETTERS, KINDS, PLACING_METHODS, AcceleratorKind
from devwidget.records.fault_details import InWorker, NotBuilt, NotVisible
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site, cell_label, cells
from devwidget.records.syntax import name_of_called
from devwidget.records.trace import Fault, Trace
from devwidget.rules.call_edits import replace_literal, replace_only_literal, set_device_ids
from devwidget.rules.edits.draft import Draft, mended, read_to
from devwidget.rules.edits.moves_on_entry import move_in_the_loop
from devwidget.rules.edits.source_file import Code, code_of_site, has_torch, uses_name
from devwidget.rules.found import Found
from devwidget.rules.registry import rule

_IF_THERE = Message("use the GPU only if there is one")


@rule("invalid-device", "error", needs=("operations",))
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each request for a device that does not exist."""
    for fault in trace.faults:
        if fault.what == "device":
            yield _make_finding(fault)


def _make_finding(fault: Fault) -> Found:
    if isinstance(fault.detail, InWorker):
        return _find_in_worker(fault, fault.detail)
    has_kind = _has_kind(fault)
    kind = _kind(fault)
    notes = []
    if has_kind and kind.visible_variable and fault.requested.partition(":")[2].isdigit():
        notes.append(
            Message(
                "{variable} hides and renumbers devices: the first visible one is {type}:0",
                variable=kind.visible_variable,
                type=kind.type,
            )
        )
    setting = _setting_of(kind.visible_variable, fault)
    if setting is not None:
        facts = {"variable": kind.visible_variable, "kind": kind.type.upper(), "place": str(setting)}
        notes.append(Message("{kind} reads {variable} once, when it is first used; {place} sets it", **facts))
    return Found(
        fault,
        Message(
            "`{requested}` does not exist on this machine (available: {here})",
            requested=fault.requested,
            here=", ".join(fault.available),
        ),
        why=_why(fault),
        birth=fault.birth or fault.site,
        fixes=_list_fixes(fault, is_portable=not has_kind and _requested_kind(fault) is not None),
        notes=notes,
        cause=fault.requested,
        operands=(),
    )


def _setting_of(variable: str, fault: Fault) -> Site | None:
    """Return the line of the program, or of a cell, that sets a variable of the environment."""
    if fault.site is None or not variable:
        return None
    files = [fault.site.file]
    if cell_label(fault.site.file):
        files += cells()
    for file in dict.fromkeys(files):
        code = code_of_site(Site(file, 1))
        if code is None:
            continue
        for node in ast.walk(code.tree):
            match node:
                case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=name))]) if name == variable:
                    return Site(file, node.lineno)
    return None


def _find_in_worker(fault: Fault, detail: InWorker) -> Found:
    facts = {"function": fault.call, "device": fault.requested}
    return Found(
        fault,
        Message("`{function}` uses {device} in a DataLoader worker, which is a forked process", **facts),
        why=Message("CUDA cannot be used in a process that is forked after CUDA was initialized"),
        birth=fault.site,
        fixes=(
            move_in_the_loop(fault.site, detail.loop),
            Fix(Message("create the tensors on the CPU, and move each batch in the loop")),
            Fix(Message("load the batches in this process"), "DataLoader(..., num_workers=0)", "choice"),
        ),
        operands=(),
    )


def _why(fault: Fault) -> Message:
    kind = _requested_kind(fault)
    if isinstance(fault.detail, NotBuilt) and kind is not None:
        return Message(
            "this build of torch ({version}) does not support {kind}, whatever devices the machine has",
            version=fault.detail.version,
            kind=kind.type.upper(),
        )
    if fault.call == "load":
        return Message("a file stores the device of each tensor, and `torch.load` loads each tensor onto that device")
    if kind is None:
        return Message("a device string must begin with a device type that torch knows")
    if _has_kind(fault):
        return Message("ordinals count the visible devices from 0")
    if isinstance(fault.detail, NotVisible) and fault.detail.hidden_by:
        return Message("`{setting}` in the environment hides every device", setting=fault.detail.hidden_by)
    return Message(
        "torch finds no device of {kind}: none is there, its driver is missing, or it is hidden", kind=kind.type.upper()
    )


def _requested_kind(fault: Fault) -> AcceleratorKind | None:
    """The kind of accelerator that was requested by its name or by an index; None for an unknown name."""
    name = fault.requested.partition(":")[0]
    if name.isdigit() or fault.call == "DataParallel":
        return CUDA
    return KINDS.get(name)


def _has_kind(fault: Fault) -> bool:
    kind = _requested_kind(fault)
    return kind is not None and any(each.partition(":")[0] == kind.type for each in fault.available)


def _list_fixes(fault: Fault, *, is_portable: bool) -> Iterator[Fix | None]:
    """The intended device; where there is no such device, the GPU if there is one, or a virtual GPU."""
    right, kind = _right_name(fault), _kind(fault).type
    if fault.call == "load":
        code = f"torch.load(..., map_location={right!r})"
        yield mended(fault.site, Message("load it onto an available device"), read_to, repr(right), instead=code)
    elif fault.call == "DataParallel":
        count = f"torch.{kind}.device_count()"
        code = f"device_ids=list(range({count}))"
        yield mended(fault.site, Message("use the available GPUs"), set_device_ids, count, instead=code)
    elif is_portable:
        yield from _list_choices(fault)
    else:
        yield from _list_names(fault, right, kind)
    if is_portable and _requested_kind(fault) is CUDA:
        virtual = Message("run it on a virtual GPU; in a notebook: `%devwidget simulate 1`")
        yield Fix(virtual, "devwidget.simulate(gpus=1).start()", "choice")


def _list_choices(fault: Fault) -> Iterator[Fix | None]:
    kind = (_requested_kind(fault) or CUDA).type
    edits = [mended(site, _IF_THERE, _take_if_there, fault, kind) for site in (fault.birth, fault.site)]
    yield from edits
    if not any(edits):
        choice, code = _choice_of(fault.requested, fault), f"device = {_choice_of(kind, fault)}"
        edit = mended(fault.birth, _IF_THERE, replace_literal, fault.requested, choice)
        yield edit or mended(fault.site, _IF_THERE, replace_only_literal, fault.requested, choice, instead=code)


def _list_names(fault: Fault, right: str, kind: str) -> Iterator[Fix | None]:
    words = Message("use {right}", right=repr(right))
    for site in (fault.birth, fault.site):
        yield mended(site, words, _renamed, fault, right)
    yield Fix(words, repr(right))
    if right.startswith(kind):
        portable = f"device = {kind!r} if torch.{kind}.is_available() else 'cpu'"
        yield Fix(_IF_THERE, portable, "choice")


def _choice_of(device: str, fault: Fault) -> str:
    """`"cuda" if torch.cuda.is_available() else "cpu"`; on a machine with MPS, which comes before the CPU."""
    kind = device.partition(":")[0]
    chosen = f'"{device}" if {_is_there(kind)} else'
    if kind != "mps" and any(each.startswith("mps") for each in fault.available):
        chosen += f' "mps" if {_is_there("mps")} else'
    return f'{chosen} "cpu"'


def _is_there(kind: str) -> str:
    if kind == "mps":  # there is no `torch.mps.is_available`
        return "torch.backends.mps.is_available()"
    return f"torch.{kind}.is_available()"


def _take_if_there(draft: Draft, statement: ast.stmt, fault: Fault, kind: str) -> None:
    """`net.cuda()` and `net.to("cuda")` become `net.to(device)`, below a new line that chooses the device."""
    code, requested = draft.code, fault.requested
    if not has_torch(code):
        return
    asks = any(_asks(code, node, requested, kind) for node in code.parts(statement))
    if not asks or uses_name(code, "device"):
        return
    chosen = requested if ":" in requested else kind
    draft.insert_above(statement, f"device = {_choice_of(chosen, fault)}")
    for node in ast.walk(code.scope(statement)):
        if _asks(code, node, requested, kind) and getattr(node, "lineno", 0) >= statement.lineno:
            _ask_for_device(draft, node)


def _asks(code: Code, node: ast.AST, requested: str, kind: str) -> bool:
    """`net.cuda()`, or the literal in `net.to("cuda")` and `torch.zeros(2, device="cuda")`."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method), args=[], keywords=[]):
            return method == kind
        case ast.Constant(value=value):
            return value == requested and isinstance(code.parents.get(node), ast.Call | ast.keyword)
    return False


def _ask_for_device(draft: Draft, node: ast.AST) -> None:
    match node:
        case ast.Call(func=ast.Attribute(value=owner)):
            draft.replace(node, f"{draft.code.text(owner)}.to(device)")
        case ast.Constant():
            draft.replace(node, "device")


def _renamed(draft: Draft, statement: ast.stmt, fault: Fault, right: str) -> None:
    """Replace the wrong name or index in a statement."""
    index = fault.requested.partition(":")[2]
    methods = {"device", *PLACING_METHODS}
    if right != "cpu":  # the CPU has no index
        methods.update(CURRENT_SETTERS)
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Constant) and node.value == fault.requested:
            draft.replace(node, repr(right))
        elif isinstance(node, ast.Call) and ast.unparse(node).endswith("device_count()"):
            draft.append(node, " - 1")
        elif index and isinstance(node, ast.Constant) and node.value == int(index) and type(node.value) is int:
            around = draft.code.parents.get(node)
            if isinstance(around, ast.Call) and name_of_called(around) in methods:
                draft.replace(node, "0")


def _right_name(fault: Fault) -> str:
    """The intended device: `cuda` for an unknown name, the first visible GPU for a wrong index, cpu without GPUs."""
    first, kind = fault.available[0], _kind(fault).type
    if first == f"{kind}:0" and ":" not in fault.requested:
        return kind
    return first


def _kind(fault: Fault) -> AcceleratorKind:
    """The accelerator of the machine, else the requested one; CUDA for an unknown name."""
    for name in (fault.available[0], fault.requested):
        kind = KINDS.get(name.partition(":")[0])
        if kind is not None:
            return kind
    return CUDA
