"""What stands in a function's place while it is patched: equal to it, pickled by its name, and nothing but it afterwards."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from types import MethodType, ModuleType
from typing import Any, Protocol

_CLASSES_HAVE_TOO = ("__module__", "__doc__", "__annotations__")
"""What is copied, because it would be found in the class; the rest is looked up in the original."""


class PatchedPlace(Protocol):
    """Where a patched function is."""

    owner: Any
    name: str


class PatchedFunction(functools.partial[Any]):
    """Calls what it is given, or later something else: whoever has imported it holds what the name means now.

    A partial, because that calls without a frame of its own. Tables of torch and of the user that are keyed by the
    original find it, and the other way round.

    Attributes:
        place: the layer of which it is.
    """

    place: PatchedPlace

    @classmethod
    def make_for(cls, function: Callable[..., Any], original: Any, place: PatchedPlace) -> PatchedFunction:
        """What stands for `original`, and that calls `function`."""
        patched = cls(function)
        own = patched.__dict__  # and not `setattr`: a recording makes thirty of them
        for name in _CLASSES_HAVE_TOO:
            if (value := getattr(original, name, own)) is not own:
                own[name] = value
        own.update(getattr(original, "__dict__", ()))
        own["__wrapped__"] = original.__wrapped__ if type(original) is cls else original  # the one below may leave first
        own["place"] = place
        return patched

    def redirect_to(self, function: Callable[..., Any]) -> None:
        """From now on call `function`. Who is inside the former one goes on."""
        self.__setstate__((function, (), {}, self.__dict__))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, if the original is one in a class: C functions of modules are none."""
        if instance is None or not hasattr(type(self.__wrapped__), "__get__"):
            return self
        return MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self.__wrapped__ == (other.__wrapped__ if isinstance(other, PatchedFunction) else other))

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        """What functions have besides: `__name__`, `__code__`, `__defaults__`."""
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> Any:
        owner, name = self.place.owner, self.place.name
        if isinstance(owner, ModuleType):
            return pkgutil.resolve_name, (f"{owner.__name__}:{name}",)
        return pkgutil.resolve_name, (f"{owner.__module__}:{owner.__qualname__}.{name}",)

    def __copy__(self) -> PatchedFunction:
        return self

    def __deepcopy__(self, memo: Any) -> PatchedFunction:
        return self

    def __repr__(self) -> str:
        return repr(self.__wrapped__)
