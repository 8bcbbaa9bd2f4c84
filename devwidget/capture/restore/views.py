"""Objects that hold nothing themselves and lead to others: views, weak references, functions with a cache."""

from __future__ import annotations

import _thread
import functools
import gc
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_SEEN: dict[type, Callable[[Any], Iterable[Any]]] = {
    memoryview: lambda view: (view.obj,),
    types.MappingProxyType: gc.get_referents,  # it shows the dict to nobody else
    type({}.keys()): gc.get_referents,
    type({}.values()): gc.get_referents,
    type({}.items()): gc.get_referents,
    weakref.ref: lambda reference: (reference(),),
    weakref.WeakMethod: lambda reference: (weakref.WeakMethod.__call__(reference),),
    _thread._local: lambda local: (local.__dict__,),
    type(functools.lru_cache(len)): lambda call: (call.__wrapped__, call.__dict__),
}


class View:
    """What one of them leads to."""

    def __init__(self, owner: Any) -> None:
        self.owner, self._parts = owner, tuple(_SEEN[type(owner)](owner))

    def list_parts(self) -> Iterable[Any]:
        """Where the search goes on."""
        return self._parts

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """As the view itself is called."""
        return (("", part) for part in self._parts)

    def put_back(self) -> None:
        """Nothing to do."""


def is_view(kind: type) -> bool:
    """Whether instances of a type lead to other objects alone."""
    return any(kind is each for each in _SEEN)
