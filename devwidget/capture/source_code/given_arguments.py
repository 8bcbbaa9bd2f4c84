"""Where a stray tensor came in: an argument, or one of a list of them, beside one that is on the right device."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from devwidget.capture.modules import is_module, own_parameters, walk_modules
from devwidget.capture.object_fields import dict_of
from devwidget.capture.source_code.call_sites import RawSite, call_text, locals_of, site_of, to_site
from devwidget.capture.source_code.caller_arguments import arguments_of
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.frames import MOST_ITEMS, lookup
from devwidget.capture.source_code.stack import is_users_code, user_frame
from devwidget.capture.tensors import is_tensor
from devwidget.records.syntax import arguments_in, names_in, parsed_expression
from devwidget.records.trace import Given


def where_given(frames: Sequence[FrameType], family: list[torch.Tensor], target: torch.device) -> Given | None:
    """The argument by which a tensor, or one that it was computed from, came in.

    Args:
        frames: of the user, innermost first.
        target: where it should have been.
    """
    for frame, above in reversed([*zip(frames, [*frames[1:], None], strict=False)]):
        code, values = frame.f_code, locals_of(frame)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = {name: values[name] for name in names if name in values}
        handed = _to_module(above, values.get(next(iter(names), "")), family, target)
        if handed is not None:
            return handed
        found = _among(frame, given, given, family, target) or _in_list(frame, given, family, target)
        if found is not None:
            return _as_passed(frame, above, found.name, target) or found
    return _read(frames[0], family, target) if frames else None


def where_left_out(frame: FrameType | None, keyword: str) -> Iterator[RawSite]:
    """The line of the user that gave nothing for an argument which the functions that it called hand on.

    That of `table(8)` if `table(n, device=None)` calls `torch.zeros(n, device=device)`; nothing if somebody said more.
    """
    inner = user_frame(frame)
    node: ast.expr | None = None
    if inner is not None and isinstance(call := parsed_expression(call_text(site_of(inner))), ast.Call):
        node = next((each.value for each in call.keywords if each.arg == keyword), None)
    while inner is not None and isinstance(node, ast.Name) and _is_given(inner, node.id):
        above = user_frame(inner.f_back)
        given = arguments_of(inner, above)
        if given is None or above is None:
            return
        if node.id not in given:
            yield site_of(above)
            return
        inner, node = above, given[node.id].node


def _is_given(frame: FrameType, name: str) -> bool:
    """Whether a name is a parameter of the function that a frame runs, and None."""
    code = frame.f_code
    return name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] and locals_of(frame).get(name, name) is None


def _to_module(above: FrameType | None, called: Any, family: list[torch.Tensor], target: torch.device) -> Given | None:
    """An argument that a caller hands to a module whose parameters are all on another GPU: any other GPU would do for it."""
    call = parsed_expression(call_text(site_of(above))) if above is not None and is_module(called) else None
    if above is None or not isinstance(call, ast.Call) or Scope(above).value(call.func) is not called:
        return None
    devices = {t.device for _, part in walk_modules(called) for t in own_parameters(part).values()}
    if devices != {target} or "cpu" in (target.type, family[0].device.type):
        return None
    name = next((ast.unparse(each) for each in arguments_in(call) if _is_one(Scope(above).value(each), family)), "")
    return Given(to_site(site_of(above)), name, (ast.unparse(call.func),), "module") if name else None


def _read(frame: FrameType, family: list[torch.Tensor], target: torch.device) -> Given | None:
    """What the failing function reads from its object."""
    if not frame.f_code.co_argcount:
        return None
    owner, values = frame.f_code.co_varnames[0], locals_of(frame)
    read = {f"{owner}.{name}": value for name, value in dict_of(values.get(owner)).items()}
    return _among(frame, read, values, family, target)


def _among(
    frame: FrameType, values: dict[str, Any], others: dict[str, Any], family: list[torch.Tensor], target: torch.device
) -> Given | None:
    """The first of these values in a frame that is one of the tensors, if others are on the right device."""
    stray = next((name for name, value in values.items() if _is_one(value, family)), "")
    beside = tuple(_on(others, target)) if stray else ()
    return Given(to_site(site_of(frame)), stray, beside) if beside else None


def _in_list(frame: FrameType, given: dict[str, Any], family: list[torch.Tensor], target: torch.device) -> Given | None:
    """The first list or tuple of tensors that has one of these, if others, in it or beside it, are on the right device."""
    for name, value in given.items():
        kind = type(value)
        if (kind is list or kind is tuple) and len(value) <= MOST_ITEMS and all(map(is_tensor, value)):
            items = {f"{name}[{index}]": item for index, item in enumerate(value)}
            beside = (*_on(given, target), *_on(items, target))
            if beside and any(_is_one(item, family) for item in value):
                return Given(to_site(site_of(frame)), name, beside, kind.__name__)
    return None


def _as_passed(frame: FrameType, above: FrameType | None, name: str, target: torch.device) -> Given | None:
    """What a function that calls it computed for an argument, where something is on the right device.

    On the way into the call, `f(x, [self.kernel(s)] * 2)`, or in the same file as a variable of its own.
    """
    argument = (arguments_of(frame, above) or {}).get(name)
    call = parsed_expression(call_text(site_of(above))) if above is not None else None
    if above is None or argument is None or call is None or above.f_code.co_name == "<module>":
        return None
    part = _made_on_the_way(argument.node, above) or (argument.node if _is_own_variable(argument.node, frame, above) else None)
    names = {name: lookup(above, name) for name in names_in(call)}
    beside = tuple(_on({**names, **locals_of(above)}, target)) if part is not None else ()
    return Given(argument.site, ast.unparse(part), beside) if part is not None and beside else None


def _is_own_variable(node: ast.expr, frame: FrameType, above: FrameType) -> bool:
    """Whether the caller is a function of the same file that has assigned what it passes."""
    code = above.f_code
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    same = code.co_filename == frame.f_code.co_filename
    return same and isinstance(node, ast.Name) and node.id in code.co_varnames and node.id not in given


def _made_on_the_way(node: ast.expr, above: FrameType) -> ast.Call | None:
    """The call of a user's function that is an argument, or the only item of a list that is one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        node = node.left if isinstance(node.left, ast.List | ast.Tuple) else node.right
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1:
        node = node.elts[0]
    code = getattr(Scope(above).value(node.func), "__code__", None) if isinstance(node, ast.Call) else None
    return node if isinstance(node, ast.Call) and type(code) is CodeType and is_users_code(code) else None


def _is_one(value: Any, family: list[torch.Tensor]) -> bool:
    return any(value is member for member in family)


def _on(values: dict[str, Any], target: torch.device) -> list[str]:
    return [name for name, value in values.items() if is_tensor(value) and value.device == target]
