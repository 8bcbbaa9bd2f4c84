"""`module:function`: a function of the user that makes a model and a batch."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from devwidget.records.errors import DevwidgetError, nearest
from devwidget.records.schema.message import Message

EXAMPLE = 'def step(): return model, batch    # or {"model": model, "batch": batch, "loss_fn": loss_fn, ...}'


def arguments(name: str, call: Callable[..., Any]) -> dict[str, Any]:
    """What the function `module:function`, or `file.py:function`, has made for a call of ours.

    Raises:
        DevwidgetError: if there is no such function, or what it returns does not fit.
    """
    where, _, function = name.rpartition(":")
    if not where:
        raise DevwidgetError(
            Message("{name} names no function", name=repr(name)),
            instead=Message("module:function, such as train:step or train.py:step"),
        )
    made = _function(_module(where), where, function)()
    return _known(dict(made) if isinstance(made, Mapping) else _pair(made, name), call)


def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        return importlib.import_module(where)
    path = os.path.abspath(where)
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise DevwidgetError(Message("there is no file {where}", where=where))
    sys.path.insert(0, os.path.dirname(path))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _function(module: ModuleType, where: str, name: str) -> Callable[[], Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise DevwidgetError(
            Message("{where} has no function `{name}`{hint}", where=where, name=name, hint=nearest(name, vars(module))),
            instead=EXAMPLE,
        )
    return found  # type: ignore[no-any-return]


def _pair(made: Any, name: str) -> dict[str, Any]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise DevwidgetError(
            Message("{name} returned a `{kind}`, not a model and a batch", name=name, kind=type(made).__name__), instead=EXAMPLE
        )
    return {"model": made[0], "batch": made[1]}


def _known(given: dict[str, Any], call: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(call).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())  # then it refuses what it does not know
    for name in () if takes_any else sorted(given.keys() - parameters.keys()):
        raise DevwidgetError(
            Message("`{kind}` knows no argument `{name}`{hint}", kind=call.__name__, name=name, hint=nearest(name, parameters)),
            instead=EXAMPLE,
        )
    for name in {"model", "batch"} - given.keys():
        raise DevwidgetError(Message("there is no `{name}` in what the function returned", name=name), instead=EXAMPLE)
    return given
