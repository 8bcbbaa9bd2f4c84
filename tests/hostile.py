"""Objects that note, and may raise at, every protocol through which a reader could run their code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn

import devwidget

_OURS = devwidget.__file__.rpartition("/")[0]
calls: list[str] = []
"""Where devwidget ran code of the user: the protocol, and the line of ours."""

_ANSWERS: dict[str, Any] = {
    "__eq__": False, "__ne__": True, "__lt__": False, "__contains__": False, "__hash__": 1, "__len__": 3, "__bool__": True,
    "__str__": "text", "__repr__": "text", "__format__": "text", "__instancecheck__": False, "__subclasscheck__": False,
    "__iter__": iter(()), "__getitem__": 0, "keys": (), "values": (), "items": (), "get": None,
}  # fmt: skip
_OF_MODULES = ("modules", "parameters", "buffers", "named_modules", "named_parameters", "named_buffers", "children",
               "named_children")  # fmt: skip
_OF_CLASSES = ("__eq__", "__hash__", "__instancecheck__", "__subclasscheck__", "__iter__", "__len__", "__bool__", "__repr__")


PROTOCOLS = (*_ANSWERS, *_OF_MODULES, "__getattr__", "__class__")


def _called(name: str) -> None:
    """Note a call that comes straight out of devwidget, with nothing but torch and Python in between."""
    frame = sys._getframe(2)
    while frame.f_back is not None and (frame.f_code.co_filename == __file__ or _is_library(frame.f_code.co_filename)):
        frame = frame.f_back
    line = traceback.extract_stack(frame)[-1]
    if line.filename.startswith(_OURS) and "func(" not in line.line and "original(" not in line.line:  # the program's own call
        calls.append(f"{name} at {line.filename.removeprefix(_OURS)}:{line.lineno} {line.line}")


def _is_library(filename: str) -> bool:
    return "/torch/" in filename or ("/lib/python3" in filename and "site-packages" not in filename) or filename.startswith("<")


def _spy(name: str, *, raises: bool, answer: Any = None) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _called(name)
        if raises:
            raise ZeroDivisionError(name)
        torch.rand(1)  # who runs this changes the program's random numbers
        if name == "__getattr__":
            raise AttributeError(*args)
        return _ANSWERS.get(name.removeprefix("meta "), answer)

    return method


def hostile(
    base: type, *, raises: bool, meta: bool = False, only: Collection[str] | None = None, claims: type | None = None
) -> type:
    """A subclass of a class that spies on all that a reader could ask of it, and of its class if `meta`.

    But for what torch itself asks of its own classes, whoever looks.

    Args:
        only: the protocols that it has a say in; all by default.
        claims: which class it says that it is; by default it raises.
    """
    of_torch = issubclass(base, nn.Module | torch.optim.Optimizer | torch.autograd.Function)
    own = [name for name in _ANSWERS if name.startswith("__") or hasattr(base, name)]
    body = {name: _spy(name, raises=raises) for name in own if not name.endswith("check__")}
    body |= {name: _spy(name, raises=raises) for name in _OF_MODULES if issubclass(base, nn.Module)}
    if not of_torch:
        body["__getattr__"] = _spy("__getattr__", raises=raises)
        body["__class__"] = property(_spy("__class__", raises=claims is None, answer=claims))
    if only is not None:
        body = {name: spy for name, spy in body.items() if name in only}
    kind = _hostile_type(type(base), raises) if meta else type(base)
    return kind(f"Hostile{base.__name__}", (base,), {**body, "__module__": "users_code"})


def _hostile_type(base: type, raises: bool) -> type:
    # Python's own `isinstance(x, Mapping)` asks every class that derives from it, wherever in the process that is said.
    names = [name for name in _OF_CLASSES if base is type or name != "__subclasscheck__"]
    return type("HostileType", (base,), {name: _spy(f"meta {name}", raises=raises) for name in names})
