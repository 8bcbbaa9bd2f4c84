"""Refuse invalid calls of public functions with devwidget's own errors. Needs nothing of torch."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from devwidget.records.schema.message import Message
from devwidget.records.schema.misuse import ArgumentError, nearest

P = ParamSpec("P")
R = TypeVar("R")


def says_what_fits(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse invalid calls of a public function. Valid calls cost nothing more."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except TypeError:
            refuse_call(function, args, kwargs)
            raise

    return call


def refuse_call(function: Callable[..., Any], args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Accept a call that fits the signature.

    Raises:
        ArgumentError: for the first unknown, excess or missing argument.
    """
    signature = inspect.signature(function)
    known, name = signature.parameters, f"devwidget.{function.__name__}"
    if not any(each.kind is each.VAR_KEYWORD for each in known.values()):
        refuse_unknown(function.__name__, kwargs, known)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        single = [each for each in known.values() if each.kind is not each.VAR_KEYWORD]
        needed = [each.name for each in single if each.default is each.empty]
        spelled = [f"{each}=..." if known[each].kind is inspect.Parameter.KEYWORD_ONLY else each for each in needed]
        raise ArgumentError(
            Message("invalid call of `{call}`: {problem}", call=name, problem=str(error)),
            why=Message("the signature is {call}{signature}", call=name, signature=_names_of(signature)),
            instead=f"{name}({', '.join(spelled)})",
        ) from None


def _names_of(signature: inspect.Signature) -> str:
    """Return `(model, batch, *, loss_fn=None)`: the signature without types."""
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def refuse_unknown(call: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown arguments.

    Raises:
        ArgumentError: with the first of them, and the closest known name.
    """
    for name in names:
        if name not in known:
            raise ArgumentError(
                Message("`{call}` has no argument `{name}`{hint}", call=call, name=name, hint=nearest(name, known)),
                instead=Message("one of {known}", known=", ".join(known)),
            )
