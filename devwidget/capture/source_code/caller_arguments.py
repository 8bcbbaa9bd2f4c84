"""Arguments: what the user's frame above wrote for the parameters of a call that still runs."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

from devwidget.capture.source_code.call_sites import call_text, line_of, locals_of, site_of, to_site
from devwidget.capture.source_code.classes import list_written
from devwidget.capture.source_code.expressions import UNKNOWN, Scope
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_expression


@dataclass(frozen=True, slots=True)
class Argument:
    """What a call wrote for a parameter, and where."""

    node: ast.expr
    site: Site


def arguments_of(frame: FrameType, above: FrameType | None) -> dict[str, Argument] | None:
    """What the user's frame above wrote for the parameters of a call, up to the first `*args`.

    None if it called something else, or used `*args` or `**kwargs`.
    """
    if above is None:
        return None
    raw = site_of(above)
    call, site = parsed_expression(call_text(raw), line_of(raw)), to_site(raw)
    if not isinstance(call, ast.Call) or site is None or _has_stars(call):
        return None
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount]
    if _is_called_on_first(call, frame, Scope(above)):
        names = names[1:]
    elif not _is_called_plainly(call, frame, Scope(above)):
        return None
    pairs = [*zip(names, call.args, strict=False), *((keyword.arg, keyword.value) for keyword in call.keywords)]
    return {name: Argument(node, site) for name, node in pairs if name is not None}


def _has_stars(call: ast.Call) -> bool:
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return starred or any(keyword.arg is None for keyword in call.keywords)


def _is_called_on_first(call: ast.Call, frame: FrameType, scope: Scope) -> bool:
    """Whether the object that a call is made on is the first argument: `model(x)` runs `forward(self, x)`."""
    code = frame.f_code
    first = locals_of(frame).get(code.co_varnames[0], UNKNOWN) if code.co_argcount else UNKNOWN
    if first is UNKNOWN:
        return False
    if scope.value(call.func) is first:
        return True
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == code.co_name
    return is_method and isinstance(call.func, ast.Attribute) and scope.value(call.func.value) is first


def _is_called_plainly(call: ast.Call, frame: FrameType, scope: Scope) -> bool:
    """Whether a call names the function that a frame runs, or what a decorator has made of it."""
    called: Any = scope.value(call.func)
    written = list_written(called) if type(called) is FunctionType else ()
    return any(function.__code__ is frame.f_code for function in written)
