"""Values without a name: what the failing line, or a caller that still runs, computed on the way into a call."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from types import FrameType

import torch

from devwidget.capture.source_code.call_sites import call_text, line_of, site_of, to_site
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, stays
from devwidget.capture.source_code.frames import name_in
from devwidget.capture.source_code.past.decisions import Aspect, Maker
from devwidget.capture.source_code.past.makers import makers
from devwidget.capture.source_code.past.past_calls import Argument, defaults, definition_of
from devwidget.capture.source_code.past.running_calls import arguments_of
from devwidget.capture.source_code.statements import site_at
from devwidget.records.syntax import parsed_expression, parsed_statement

_VIEWS = frozenset({"T", "mT", "H", "data", "grad", "real", "imag"})
_NUMBERS = frozenset({"size", "dim", "numel", "stride", "item", "tolist", "numpy", "element_size", "get_device"})
_RESULTS = frozenset(dir(torch.Tensor)) - _NUMBERS
"""Methods of a tensor that give one."""
Temporaries = list[tuple[str, list[Maker | torch.Tensor]]]
"""Source of an expression, and where its value came from."""


def temporaries(frame: FrameType) -> Temporaries:
    """The operands of the call that a frame was making whose values are gone: their source, and where they came from.

    Of a comprehension it is the source of one element: a list has no device.
    """
    scope, site = Scope(frame), to_site(site_of(frame))
    gone = [part for part in operands_of(frame) if scope.value(part) is UNKNOWN] if site is not None else []
    return [(ast.unparse(element_of(part)), makers(part, scope, site)) for part in gone if site is not None]


def unknown_operands(frame: FrameType) -> list[ast.expr]:
    """The operands of the call that a frame was making of which nothing at all is known; none if others are not certain."""
    scope = Scope(frame)
    operands = [part for part in operands_of(frame) if not isinstance(part, ast.Slice)]
    unknown = [part for part in operands if not scope.given(part)]
    return unknown if all(part in unknown or _is_certain(part, scope) for part in operands) else []


def _is_certain(node: ast.expr, scope: Scope) -> bool:
    """Whether the device of a result is that of its tensors for sure: a layer or `torch.zeros(x.shape)` may be anywhere."""
    if scope.value(node) is not UNKNOWN:
        return True
    if isinstance(node, ast.BinOp):
        return _is_certain(node.left, scope) and _is_certain(node.right, scope)
    if isinstance(node, ast.UnaryOp):
        return _is_certain(node.operand, scope)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_method = scope.value(node.func) is UNKNOWN and node.func.attr in _RESULTS and stays(node, scope)
        return is_method and _is_certain(node.func.value, scope)
    view = isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in _VIEWS)
    return view and isinstance(node, ast.Subscript | ast.Attribute) and _is_certain(node.value, scope)


def operands_of(frame: FrameType) -> list[ast.expr]:
    """What the call that a frame was making was given: its operands, and the items of tuples and lists among them."""
    raw = site_of(frame)
    text = call_text(raw)
    node = parsed_expression(text, line_of(raw)) or parsed_statement(text.strip(), line_of(raw))
    return [item for part in _operands(node) for item in (part.elts if isinstance(part, ast.List | ast.Tuple) else [part])]


def element_of(node: ast.expr) -> ast.expr:
    """What a comprehension writes for one element; any other expression itself."""
    return node.elt if isinstance(node, ast.ListComp | ast.GeneratorExp) else node


def _operands(node: ast.AST | None) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.Subscript):
        return [node.value, node.slice]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if not isinstance(node, ast.Call):
        return []
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return [*owner, *node.args, *(keyword.value for keyword in node.keywords)]


def argument_sources(frames: Sequence[FrameType], tensor: torch.Tensor, aspect: Aspect) -> list[Maker | torch.Tensor]:
    """What a caller that still runs wrote for the argument that a tensor is, or the function for its default."""
    for frame, above in itertools.pairwise(frames):
        name = name_in(frame, lambda value: value is tensor)
        given = arguments_of(frame, above)
        source = (given or {}).get(name) or (_default(frame, name) if given is not None else None)
        if source is not None:
            return makers(source.node, source.scope, source.site, (), aspect)
    return []


class _FileScope(Scope):
    """The names of the file that a frame runs."""

    def __init__(self, frame: FrameType) -> None:
        self._locals, self._globals = {}, frame.f_globals


def _default(frame: FrameType, name: str) -> Argument | None:
    """What the function says for an argument that it was not given; the file has read that, not the call."""
    node = definition_of(frame.f_code)
    default = defaults(node).get(name) if node is not None else None
    if default is None:
        return None
    return Argument(default, _FileScope(frame), site_at(frame.f_code.co_filename, default.lineno, "<module>"))
