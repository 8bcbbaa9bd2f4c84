"""Values without a name: what the failing line, or a caller that still runs, computed on the way into a call."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from types import FrameType

import torch

from devwidget.capture.source_code.call_sites import call_text, line_of, site_of, to_site
from devwidget.capture.source_code.expressions import UNKNOWN, Scope
from devwidget.capture.source_code.frames import name_in
from devwidget.capture.source_code.past.decisions import Aspect, Maker
from devwidget.capture.source_code.past.makers import makers
from devwidget.capture.source_code.past.past_calls import Argument, defaults, definition_of
from devwidget.capture.source_code.past.running_calls import arguments_of
from devwidget.capture.source_code.statements import site_at
from devwidget.records.syntax import parsed_expression

Temporaries = list[tuple[str, list[Maker | torch.Tensor]]]
"""Source of an expression, and where its value came from."""


def temporaries(frame: FrameType) -> Temporaries:
    """The operands of the call that a frame was making whose values are gone: their source, and where they came from."""
    raw, scope = site_of(frame), Scope(frame)
    node, site = parsed_expression(call_text(raw), line_of(raw)), to_site(raw)
    if node is None or site is None:
        return []
    gone = [part for part in _operands(node) if scope.value(part) is UNKNOWN]
    return [(ast.unparse(part), makers(part, scope, site)) for part in gone]


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
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
