"""Names: how the user's code calls a tensor, who keeps it, and which line put it where it is."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import get_testing_overrides

from devwidget.capture import lineage, source
from devwidget.capture.call_site import call_text, is_library, line_of, locals_of, raw_site, to_site, user_frame
from devwidget.capture.fields import class_values
from devwidget.capture.identity import Birth
from devwidget.capture.places import own_parameters, own_tensors
from devwidget.capture.state import State
from devwidget.capture.tensors import tensors_in
from devwidget.capture.unregistered import Search
from devwidget.records.site import Site
from devwidget.records.trace import Held, Operand


class Names:
    """Names as seen from one failing frame; keeps the frame no longer than the fault takes to describe."""

    def __init__(self, state: State, frame: FrameType) -> None:
        self._state = state
        self._frame = user_frame(frame)
        self._frames = list(_user_frames(frame))

    def expression(self, tensor: object) -> str:
        """How the failing frame's code can write this tensor; "" if it has no name there."""
        return name_in(self._frame, lambda value: value is tensor) if self._frame is not None else ""

    def model_name(self) -> str:
        """The variable that holds the root module."""
        if self._state.places.model_name:
            return self._state.places.model_name
        roots = [root for ref in self._state.places.roots if (root := ref()) is not None]
        for frame in self._frames:
            for name, value in locals_of(frame).items():
                if name != "self" and not name.startswith("_") and any(value is root for root in roots):
                    return str(name)
        return ""

    def with_birth(self, operand: Operand, tensor: torch.Tensor, target: torch.device, *, of_dtype: bool = False) -> Operand:
        """The operand with the line that decided its device, or its dtype, and who keeps it."""
        birth = self._state.births.get(tensor)
        family = [t for b in birth.chain() if (t := b.tensor()) is not None] if birth else [tensor]
        operand = dataclasses.replace(operand, ineffective=self._ineffective(family or [tensor]))
        root = None if birth is None else birth.dtype_root() if of_dtype else birth.root()
        if root is None or root.site is None:
            return self._by_source(operand, tensor, family, target, of_dtype=of_dtype)
        return dataclasses.replace(
            operand,
            held=self._held(family or [tensor]),
            birth=to_site(root.site),
            birth_call=call_text(root.site),
            birth_op=root.call,
            birth_direct=root.direct,
            birth_partner=self._partner(root, target),
            from_move=root.is_move,
        )

    def _by_source(
        self, operand: Operand, tensor: torch.Tensor, family: list[torch.Tensor], target: torch.device, *, of_dtype: bool
    ) -> Operand:
        """The story of a tensor that is older than the recording, as the source tells it."""
        same = (lambda t: t.dtype == tensor.dtype) if of_dtype else (lambda t: t.device == tensor.device)
        found = lineage.origin(self._frames, tensor, target, name_in, same)
        held = self._held([*family, *found.tensors])
        if held is not None and (found.site is None or held.how in ("parameter", "buffer")):
            birth = held.assigned or self._registered_at(held.module or "") or found.site
            return dataclasses.replace(operand, held=held, birth=birth)
        return dataclasses.replace(
            operand,
            held=held,
            birth=found.site,
            birth_call=found.call,
            birth_op=found.op,
            birth_direct=found.direct,
            birth_partner="" if of_dtype else found.partner,
            from_move=found.op in source.MOVES,
        )

    def _registered_at(self, path: str) -> Site | None:
        """The user's line that gave a module of torch's own to the model."""
        modules, parts = dict(self._state.places.modules()), path.split(".") if path else []
        owners = ((modules.get(".".join(parts[:depth])), parts[depth]) for depth in reversed(range(len(parts))))
        sites = (_assigned_in_class(type(owner), name) for owner, name in owners if owner is not None)
        return next((site for site in sites if site is not None), None)

    def _ineffective(self, family: list[torch.Tensor]) -> Site | None:
        """The line that asked to move one of these tensors and dropped the result."""
        for tensor in family:
            attempt = self._state.attempts.get(tensor)
            if attempt is not None and attempt.site is not None:
                site = source.discarded_move(attempt.site.code.co_filename, line_of(attempt.site))
                if site is not None:
                    return site
            for frame in self._frames:
                name = name_in(frame, lambda value, tensor=tensor: value is tensor)
                site = _asked_in_vain(frame, name) if name else None
                if site is not None:
                    return site
        return None

    def device_argument(self, requested: Any) -> tuple[str, Site | None]:
        """The expression that named a device in the failing call, and the line that gave it its value."""
        if self._frame is None:
            return "", None
        here = to_site(raw_site(self._frame))
        for node in _argument_nodes(call_text(raw_site(self._frame))):
            text = ast.unparse(node)
            if isinstance(node, ast.Constant) and _same(node.value, requested):
                return text, here
            if isinstance(node, ast.Name) and _same(_lookup(self._frame, node.id), requested):
                return text, self._assigned(node.id) or here
        return "", here

    def argument_of(self, value: Any) -> tuple[str, Site | None]:
        """The variable that holds an argument of the failing call, and the line that assigned it."""
        if self._frame is None:
            return "", None
        name = name_in(self._frame, lambda other: other is value)
        return name, self._assigned(name) if name else None

    def made_by_call(self, value: Any, factory: str) -> Site | None:
        """The line that made an object which is no tensor: where the file calls its factory and assigns the result."""
        _, site = self.argument_of(value)
        if site is not None or self._frame is None:
            return site
        return source.made_by(self._frame.f_code.co_filename, factory)

    # -- who keeps it

    def _held(self, family: list[torch.Tensor]) -> Held | None:
        named = list(self._state.places.modules())
        registered = {id(part) for _, m in named for part in (m, *own_tensors(m).values())}
        search = Search(lambda value: id(value) in registered)
        for path, module in named:
            for how, name, tensor, note in _owned(module, search):
                if any(tensor is member for member in family):
                    assigned = _assigned_in_class(type(module), name)
                    held = Held(path, name, how, type(module).__name__, assigned, note=note)
                    return self._registered(held, tensor) if how in ("parameter", "buffer") else held
        return self._held_by_name(family)

    def _registered(self, held: Held, tensor: torch.Tensor) -> Held:
        """A registered tensor with the other modules that share it, and the module that was left behind."""
        paths = {
            f"{path}.{name}".strip(".")
            for path, module in self._state.places.modules()
            for name, value in own_tensors(module).items()
            if value is tensor
        }
        shared = tuple(sorted(paths - {f"{held.module}.{held.name}".strip(".")}))
        left = self._left_behind(held.module or "", tensor.device)
        return dataclasses.replace(held, shared=shared, left_behind=left)

    def _left_behind(self, path: str, device: torch.device) -> str:
        """The topmost module around `path` that has nothing on another device: what the user forgot to move."""
        elsewhere = {
            owner
            for owner, module in self._state.places.modules()
            if any(tensor.device != device for tensor in own_tensors(module).values())
        }
        names = path.split(".") if path else []
        for length in range(len(names) + 1):
            top = ".".join(names[:length])
            if not any(owner == top or owner.startswith(f"{top}." if top else "") for owner in elsewhere):
                return top
        return path

    def _held_by_name(self, family: list[torch.Tensor]) -> Held | None:
        for frame in self._frames:
            used = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
            for name, value in used.items():
                if any(value is member for member in family):
                    return Held(None, name, "global", "", _module_level(frame, name))
        return None

    def _assigned(self, name: str) -> Site | None:
        frame = self._frame
        if frame is None:
            return None
        return source.assignment(frame.f_code.co_filename, name, frame.f_lineno)

    def _partner(self, root: Birth, target: torch.device) -> str:
        """A tensor on the right device that the birth's own function has at hand, its arguments first."""
        frame = next((f for f in self._frames if root.site is not None and f.f_code is root.site.code), None)
        if frame is None:
            return ""
        locals_ = locals_of(frame)
        for name in [*frame.f_code.co_varnames[: frame.f_code.co_argcount], *locals_]:
            value = locals_.get(name)
            if isinstance(value, torch.Tensor) and value.device == target and _known_before(self._state, value, root):
                return name
        return ""


def kept_by_user(state: State, frame: FrameType, birth: Birth) -> Held | None:
    """Who keeps a tensor that outlives the step: an unregistered attribute, or a global that this very line's code uses."""
    names = Names(state, frame)
    names._frames = names._frames[:1]
    family = [tensor for each in birth.chain() if (tensor := each.tensor()) is not None]
    held = names._held(family)
    if held is None or (held.how == "global" and frame_is_module(names._frame)):
        return None  # the loop of a script or notebook: its globals are this step's batch
    return held if held.how in ("attribute", "class attribute", "global") else None


def frame_is_module(frame: FrameType | None) -> bool:
    """True for code at the top level of a file or cell."""
    return frame is not None and frame.f_code.co_name == "<module>"


def unregistered_tensors(state: State) -> Iterator[tuple[nn.Module, Held, torch.Tensor]]:
    """Tensors that the model's modules hold without registering them."""
    for path, module, name, tensor, note in plain_tensors(state):
        assigned = _assigned_in_class(type(module), name)
        yield module, Held(path, name, "attribute", type(module).__name__, assigned, note=note), tensor


def plain_tensors(state: State) -> Iterator[tuple[str, nn.Module, str, torch.Tensor, str]]:
    """The same as path and module, how the module calls it, the tensor, and a note."""
    named = list(state.places.modules())
    registered = {id(part) for _, m in named for part in (m, *own_tensors(m).values())}
    search = Search(lambda value: id(value) in registered)
    for path, module in named:
        for how, name, tensor, note in _owned(module, search):
            if how == "attribute":
                yield path, module, name, tensor, note


def arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Tensors of a call with the operator's own names for them."""
    names = _signature(func)
    found: list[tuple[str, torch.Tensor]] = []
    for index, (name, value) in enumerate([*enumerate(args), *kwargs.items()]):
        label = names[index] if isinstance(name, int) and index < len(names) else str(name)
        parts = list(tensors_in(value))
        many = not isinstance(value, torch.Tensor)
        found += [(f"{label}[{place}]" if many else label, part) for place, part in enumerate(parts)]
    return found


@functools.lru_cache(maxsize=256)
def _signature(func: Any) -> tuple[str, ...]:
    """Argument names as torch's own override table writes them; () for a function that it does not list."""
    if func is torch.embedding:  # the table has them the wrong way round (torch 2.13)
        return ("weight", "indices")
    stand_in = get_testing_overrides().get(func)
    code = getattr(stand_in, "__code__", None)
    return () if code is None else tuple(code.co_varnames[: code.co_argcount])


def name_in(frame: FrameType, matches: Any) -> str:
    """A variable of a frame, an attribute of one or an item in one, whose value matches; the simplest there is."""
    used = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
    scopes: dict[str, Any] = {**used, **locals_of(frame)}
    for name, value in scopes.items():
        if matches(value):
            return name
    for name, value in scopes.items():
        for suffix, part in _parts(value):
            if matches(part):
                return name + suffix
    return ""


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Attributes of a module and items of a container, one level deep."""
    if isinstance(value, nn.Module):
        for mapping in (value._parameters, value._buffers, value.__dict__):
            yield from ((f".{name}", part) for name, part in mapping.items() if isinstance(part, torch.Tensor))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items())[:64] if isinstance(part, torch.Tensor))
    elif type(value) in (list, tuple):
        yield from ((f"[{index}]", part) for index, part in enumerate(value[:64]) if isinstance(part, torch.Tensor))


def _owned(module: nn.Module, search: Search) -> Iterator[tuple[str, str, torch.Tensor, str]]:
    """How a module holds each of its tensors, under which name, and a note."""
    copied = module.__dict__.get("_former_parameters", {})  # a DataParallel replica keeps its copies as attributes
    for how, group in (("parameter", own_parameters(module)), ("buffer", module._buffers), ("parameter", copied)):
        yield from ((how, name, tensor, "") for name, tensor in group.items() if tensor is not None)
    own = vars(module)
    for name in search.candidates(own, own):
        if name not in copied:
            yield from (("attribute", *found) for found in search.tensors(name, own[name]))
    for name, value in class_values(type(module), nn.Module):
        if isinstance(value, torch.Tensor | list | tuple | dict):
            yield from (("class attribute", *found) for found in search.tensors(name, value))


def _assigned_in_class(kind: type, name: str) -> Site | None:
    """The line of the class, or of a class that it derives from, that stores an attribute."""
    attribute = name.split("[")[0].split(".")[0]
    return in_class(kind, lambda filename, owner: source.attribute_assignment(filename, owner, attribute))


def in_class(kind: type, look: Callable[[str, str], Site | None]) -> Site | None:
    """What `look(filename, class name)` finds in the source of a user's class or of its bases."""
    for base in kind.__mro__:
        code = next((f.__code__ for f in vars(base).values() if hasattr(f, "__code__")), None)
        site = look(code.co_filename, base.__name__) if code is not None and not is_library(code.co_filename) else None
        if site is not None:
            return site
    return None


def _asked_in_vain(frame: FrameType, name: str) -> Site | None:
    """A move of a variable that was not called, or whose result was thrown away, above a frame's line."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    return source.uncalled_move(file, name, line) or source.unkept_move(file, name, line)


def _module_level(frame: FrameType, name: str) -> Site | None:
    return source.assignment(frame.f_code.co_filename, name, 1_000_000_000) or source.cell_assignment(name)


def _known_before(state: State, tensor: torch.Tensor, root: Birth) -> bool:
    birth = state.births.get(tensor)
    return birth is None or birth.number < root.number


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while (frame := user_frame(frame)) is not None:
        yield frame
        frame = frame.f_back


def _argument_nodes(text: str) -> Iterable[ast.expr]:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return ()
    return [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else ()


def _lookup(frame: FrameType, name: str) -> Any:
    return locals_of(frame).get(name, frame.f_globals.get(name))


def _same(value: Any, requested: Any) -> bool:
    return value is requested or (isinstance(value, str | torch.device | int) and str(value) == str(requested))

