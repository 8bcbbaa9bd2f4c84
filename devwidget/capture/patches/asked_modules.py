"""Which modules an optimizer was given the parameters of: asked again, they would give it what they have by then."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Collection, Iterator
from types import FrameType

import torch
from torch import nn

from devwidget.capture.modules import is_module, named_tensors
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.source_code.call_sites import line_of, site_of, user_frame
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.statements import assignment, statement_text
from devwidget.records.syntax import parsed_statement

_ASKING = frozenset({"parameters", "named_parameters"})


def asked_modules(frame: FrameType) -> tuple[weakref.ref[nn.Module], ...]:
    """The modules whose `parameters()` the line that builds an optimizer names, or the assignment of what it names.

    Returns:
        () where the line does not tell.
    """
    built = user_frame(frame)
    if built is None:
        return ()
    file, line, scope = built.f_code.co_filename, line_of(site_of(built)), Scope(built)
    texts = [statement_text(file, line)]
    for node in _parse_nodes(texts[0]):
        before = assignment(file, node.id, line) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else None
        texts += [before.text] if before is not None else []
    nodes = (node for text in texts for node in _parse_nodes(text) if isinstance(node, ast.Call))
    owners = (
        scope.value(node.func.value) for node in nodes if isinstance(node.func, ast.Attribute) and node.func.attr in _ASKING
    )
    return tuple(weakref.ref(owner) for owner in owners if is_module(owner))


def _parse_nodes(text: str) -> Iterator[ast.AST]:
    statement = parsed_statement(text)
    return ast.walk(statement) if statement is not None else iter(())


def would_give(
    asked: tuple[weakref.ref[nn.Module], ...], parameter: torch.Tensor, mine: Collection[int], late: Collection[int],
    tracker: ModuleTracker,
) -> bool:  # fmt: skip
    """Whether an optimizer that is built in the same way now would get a parameter.

    Where nobody knows what was asked, it was a module that has the parameter, and all else of which the optimizer trains.

    Args:
        mine: ids of what the optimizer has.
        late: ids of what came, or was freed, after it.
    """
    if asked:
        owners = [owner for ref in asked if (owner := ref()) is not None]
        return any(parameter is each for owner in owners for _, each in named_tensors(owner, "_parameters"))
    for _, module in tracker.list_modules():
        members = [each for _, each in named_tensors(module, "_parameters")]
        others = [id(each) for each in members if id(each) not in late and each.requires_grad]
        if others and mine and all(each in mine for each in others) and any(each is parameter for each in members):
            return True
    return False
