"""Find what a file says of CUDA: strings that are devices, `.cuda()`, and names of `torch.cuda`."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from devwidget.extras.portable.replacements import ACCELERATOR, ACCELERATOR_TYPE, FIRST, REPLACEMENTS, Replacement
from devwidget.records.schema.message import Message
from devwidget.rules.edits.draft import Draft
from devwidget.rules.edits.source_file import Code

Change = Callable[[Draft], object]

_OTHERS = re.compile(r"\b(mps|xpu|npu|hpu|mtia|privateuseone)\b")
"""Accelerators that are not CUDA: a statement that names one chooses among several."""
_KEYWORDS = {"device", "device_type", "map_location"}
_WITH_DEVICE_FIRST = {
    *("torch.device", "torch.Generator", "torch.set_default_device", "torch.Event", "torch.Stream"),
    *("torch.autocast", "torch.amp.autocast", "torch.amp.GradScaler", "autocast", "GradScaler"),
}
_WITH_TYPE = {"autocast", "GradScaler"}
"""What compares its device with a string."""
_CONDITIONAL = ast.FunctionDef | ast.AsyncFunctionDef | ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler


@dataclass(frozen=True)
class Use:
    """One expression that is written for CUDA.

    Attributes:
        line: its line.
        text: what is written there.
        change: writes its replacement; None if it stays.
        since: first version of torch that has the replacement.
        note: why it stays, or what its replacement does otherwise.
    """

    line: int
    text: str
    change: Change | None = None
    since: tuple[int, int] = FIRST
    note: str = ""


def find_uses(code: Code, lines: set[int]) -> Iterator[Use]:
    """Yield what a file says of CUDA in the parts of it that ran.

    Args:
        code: the file.
        lines: recorded lines. A function or branch without one is left out.
    """
    for node in ast.walk(code.tree):
        use = _find_use(code, node)
        if use is not None and _has_run(code, node, lines) and not _chooses_among_several(code, node):
            yield _keep_guard(code, node, use)


def _keep_guard(code: Code, node: ast.AST, use: Use) -> Use:
    """Return the use of `torch.cuda.is_available` as one that stays if something else of its statement does."""
    own = code.statement_of(node)
    if use.text != "torch.cuda.is_available" or own is None:
        return use
    for part in ast.walk(own):
        other = _find_use(code, part)
        stays = other is not None and other.change is None
        if stays or (other is None and isinstance(part, ast.Constant) and part.value == "cuda"):
            text = code.text(part)
            note = Message("`{name}` stays, as `{other}` of the same statement does", name=use.text, other=text)
            return Use(use.line, use.text, note=note)
    return use


def _find_use(code: Code, node: ast.AST) -> Use | None:
    match node:
        case ast.Call(func=ast.Attribute(attr="cuda")):
            return _use_of_method(code, node)
        case ast.Attribute():
            return _use_of_name(code, node)
        case ast.Constant(value=str(text)) if re.fullmatch(r"cuda(:\d+)?", text) and _is_device(code, node):
            return _use_of_string(code, node, is_indexed=text != "cuda")
        case ast.JoinedStr(values=[ast.Constant(value="cuda:"), *_]) if _is_device(code, node):
            return _use_of_string(code, node, is_indexed=True)
    return None


def _use_of_method(code: Code, call: ast.Call) -> Use:
    text = f".cuda({', '.join(map(code.text, (*call.args, *call.keywords)))})"
    if call.args or any(keyword.arg != "non_blocking" for keyword in call.keywords):
        return Use(call.lineno, text, note=Message("`{text}` names one device and stays", text=text))
    arguments = ", ".join([ACCELERATOR, *map(code.text, call.keywords)])
    return Use(call.end_lineno or call.lineno, text, lambda draft: draft.drop_method(call, f".to({arguments})"))


def _use_of_string(code: Code, node: ast.expr, *, is_indexed: bool) -> Use:
    text = code.text(node)
    if is_indexed:
        return Use(node.lineno, text, note=Message("`{text}` names one device and stays", text=text))
    if isinstance(code.parents.get(node), ast.arguments):
        note = Message("`{text}` stays: a default value is computed when the function is defined", text=text)
        return Use(node.lineno, text, note=note)
    new = ACCELERATOR_TYPE
    if _takes_any_device(code, node):
        new = ACCELERATOR
    return Use(node.lineno, text, lambda draft: draft.replace(node, new))


def _use_of_name(code: Code, node: ast.Attribute) -> Use | None:
    """Return the use of a name such as `torch.cuda.synchronize`, with all its parts."""
    name = _dotted_name(node)
    parent = code.parents.get(node)
    if not name.startswith("torch.cuda.") or (isinstance(parent, ast.Attribute) and _dotted_name(parent)):
        return None
    replacement = REPLACEMENTS.get(name)
    call = parent if isinstance(parent, ast.Call) and parent.func is node else None
    if replacement is None or not _accepts(replacement, call):
        note = Message("`{name}` stays: `torch.accelerator` has no function with the same arguments and result", name=name)
        return Use(node.lineno, name, note=note)

    def change(draft: Draft) -> None:
        draft.replace(node, replacement.name)
        if replacement.takes_type and call is not None:
            draft.insert_argument(call, ACCELERATOR_TYPE)

    use = Use(node.lineno, name, change, replacement.since)
    if not replacement.needs_accelerator:
        return use
    warning = Message("without an accelerator, `{name}` runs, and its replacement raises an error", name=name)
    return dataclasses.replace(use, note=warning)


def _accepts(replacement: Replacement, call: ast.Call | None) -> bool:
    """Whether the replacement takes the arguments of a call; a name that is not called must not need any."""
    if call is None:
        return not replacement.takes_type
    fits = replacement.takes_positional or not call.args
    return fits and (replacement.takes_keywords or not call.keywords)


def _dotted_name(node: ast.AST) -> str:
    """Return `torch.cuda.Event`; "" for what is not a chain of names."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            before = _dotted_name(value)
            return before and f"{before}.{name}"
    return ""


def _is_device(code: Code, node: ast.AST) -> bool:
    """Whether a string is passed or assigned as a device, not compared with one."""
    match code.parents.get(node):
        case ast.IfExp(body=body, orelse=other) as parent if node in (body, other):
            return _is_device(code, parent)
        case ast.BoolOp() as parent:
            return _is_device(code, parent)
        case ast.keyword(arg=name):
            return name in _KEYWORDS
        case ast.Call(func=function, args=[first, *_]) if first is node:
            return _is_to(function) or _dotted_name(function) in _WITH_DEVICE_FIRST
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return code.text(target).lower().endswith("device")
        case ast.arguments() as parent:
            return _parameter_name(parent, node).lower().endswith("device")
    return False


def _parameter_name(parameters: ast.arguments, default: ast.AST) -> str:
    plain = [*parameters.posonlyargs, *parameters.args]
    optional = [*plain[len(plain) - len(parameters.defaults) :], *parameters.kwonlyargs]
    for parameter, value in zip(optional, [*parameters.defaults, *parameters.kw_defaults], strict=True):
        if value is default:
            return parameter.arg
    return ""


def _takes_any_device(code: Code, node: ast.AST) -> bool:
    """Whether a device fits as well as the name of its type: in `x.to(...)` and in a function of torch."""
    match code.parents.get(node):
        case ast.Call(func=function):
            return _is_to(function)
        case ast.keyword(arg="device") as keyword:
            call = code.parents.get(keyword)
            name = _dotted_name(call.func) if isinstance(call, ast.Call) else ""
            return name.startswith("torch.") and name.rpartition(".")[2] not in _WITH_TYPE
    return False


def _is_to(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "to"


def _has_run(code: Code, node: ast.AST, lines: set[int]) -> bool:
    """Whether each function and branch around a node has a recorded line."""
    inner = node
    for outer in code.around(node):
        if isinstance(outer, _CONDITIONAL):
            for block in (outer.body, getattr(outer, "orelse", [])):
                if inner in block and lines.isdisjoint(range(block[0].lineno, (block[-1].end_lineno or 0) + 1)):
                    return False
        inner = outer
    return True


def _chooses_among_several(code: Code, node: ast.AST) -> bool:
    """Whether the statement or a condition around it names another accelerator, too."""
    own = code.statement_of(node)
    if own is None or isinstance(own, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    conditions = [each for each in code.around(own) if isinstance(each, ast.If)]
    return any(_OTHERS.search(code.text(each)) for each in (own, *conditions))
