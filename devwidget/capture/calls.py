"""Calls: a function mode above autograd that sees each call of the user, remembers births and heals faults."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from devwidget.capture import naming, promotions
from devwidget.capture.call_site import RawSite, caller
from devwidget.capture.faults import devices, dtypes, generators, host, kernels, leaves, meta, operands
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.identity import Birth
from devwidget.capture.source import MOVES
from devwidget.capture.state import State
from devwidget.capture.tensors import tensors_in
from devwidget.capture.traffic import VIEWS, WAITS

FAMILIES = (generators, operands, host, meta, devices, kernels, dtypes)
_BACKWARD = frozenset({"backward", "grad"})
_GRAD = vars(torch._C.TensorBase)["grad"]
_SPECIAL = WAITS | {"__set__", "copy_", "requires_grad_"}


class Calls(TorchFunctionMode):
    """Watches torch calls; one instance for each thread."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._here = state.places.here

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Make the call; after a device fault, make it again with the strays moved."""
        name = getattr(func, "__name__", "")
        if name == "__get__":  # an attribute such as `x.shape`
            out = func(*args)
            if out is None and func.__self__ in (_GRAD, vars(torch.Tensor).get("grad")):  # virtual GPUs have their own
                leaves.look_for_gradient(self._state, args[0], sys._getframe(1))
            return out
        kwargs, here, frame = kwargs or {}, self._here, sys._getframe(1)
        site = self._state.places.site(frame)
        try:
            if name in _BACKWARD and getattr(func, "__module__", "").startswith(("torch._tensor", "torch.autograd")):
                out = self._backward(func, args, kwargs)
            else:
                here.site = site
                out = func(*args, **kwargs)
        except Exception as error:
            out = self._healed(func, args, kwargs, error, frame)
            if out is NOT_OURS:
                raise
        finally:
            here.site = None
        try:
            if name in _SPECIAL and not self._special(name, args, kwargs, frame, site):
                return out
            if isinstance(out, torch.Tensor):
                self._born(name, args, kwargs, out, frame, site)
            elif isinstance(out, tuple | list):
                for part, operands in zip(out, _rows(name, args), strict=False):
                    for result in tensors_in(part, depth=1):  # an LSTM's states are a tuple in a tuple
                        self._born(name, operands, kwargs, result, frame, site)
        except Exception as error:  # a bug of ours, or a tensor class that answers no question
            self._state.log.trouble(error)
        return out

    def _backward(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Autograd runs, and in it hooks and functions of the user, each with a line of its own."""
        places = self._state.places
        with places.during("backward"):
            out = func(*args, **kwargs)
        if func.__name__ == "backward":
            places.end_step()
            self._state.ties.trained(self._state)
        return out

    def _healed(self, func: Any, args: tuple[Any, ...], kwargs: Any, error: Exception, frame: FrameType) -> Any:
        """The result of the repaired call; NOT_OURS if the exception is none of our business."""
        call = FailedCall(self._state, func, args, kwargs, error, frame)
        for family in FAMILIES:
            try:
                out = family.meet(call)
            except Exception as trouble:  # a bug of ours must not take the place of the user's exception
                self._state.log.trouble(trouble)
                continue
            if out is not NOT_OURS:
                return out
        return NOT_OURS

    def _special(self, name: str, args: tuple[Any, ...], kwargs: Any, frame: FrameType, site: RawSite | None) -> bool:
        """Calls that do more than make their result; False for those that make none to remember."""
        if name == "copy_":
            self._copied(args, kwargs, site)
            return True
        if name == "requires_grad_":
            self._switched(args[0], on=bool(args[1] if len(args) > 1 else kwargs.get("requires_grad", True)))
        elif name == "__set__":
            self._data_replaced(args)
        else:
            self._waited(name, args, frame, site)
        return False

    def _born(
        self, name: str, args: tuple[Any, ...], kwargs: Any, result: torch.Tensor, frame: FrameType, site: RawSite | None
    ) -> None:
        """Note which line decided the device of a result."""
        state = self._state
        births, device, dtype = state.births, result.device, result.dtype
        moving, looking = name in MOVES, name in VIEWS
        parent, data, computed = None, None, False
        for tensor in _operands(args, kwargs):
            if tensor is result:
                return
            birth = births.get(tensor)
            if birth is None:  # older than the recording
                birth = Birth(tensor, -1)
                births.put(tensor, birth)
            if birth.hops:
                data = birth if data is None else data
                if not moving and not looking:
                    state.traffic.used(birth, site)
            if tensor.device == device:
                if parent is None or (parent.dtype != dtype == birth.dtype):
                    parent = birth
                # Most tensors are no subclass, and `isinstance` of a Parameter is slow to say no.
                computed = computed or not (looking or type(tensor) is torch.Tensor or not isinstance(tensor, nn.Parameter))
        if dtype is torch.float64 and not moving:
            promotions.look(state, name, (args, kwargs), result, frame, site)
        number = state.log.number()
        if parent is not None and not computed and parent.dtype == dtype:
            birth = Birth(result, number, parent=parent)
        else:
            birth = self._decided(name, number, args, result, None if computed else parent, frame, site)
        if data is not None:
            birth.hops = data.hops
            birth.hop = data.hop if looking else None
        births.put(result, birth)
        if name == "clone":  # `copy.deepcopy` makes a Parameter of it out of sight
            births.put_storage(result, birth)
        if moving and birth.direct:
            state.attempts.put(args[0], birth)
            if birth.is_move:
                self._hopped(birth, args, kwargs, result, frame)

    def _decided(
        self,
        name: str,
        number: int,
        args: tuple[Any, ...],
        result: torch.Tensor,
        parent: Birth | None,
        frame: FrameType,
        site: RawSite | None,
    ) -> Birth:
        """A factory, a move, a cast, or a layer: an activation is where it is because the layer's weights are there."""
        is_move = name in MOVES and parent is None
        origin = self._state.births.get(args[0]) if is_move else None
        return Birth(result, number, name, site, _calls_itself(frame, site), is_move, parent, origin)

    def _hopped(self, birth: Birth, args: tuple[Any, ...], kwargs: Any, result: torch.Tensor, frame: FrameType) -> None:
        """A line of the user moved a tensor."""
        source, before = args[0], birth.origin
        places = self._state.places
        in_loss = places.phase == "loss" and birth.site is not None and not places.outside(birth.site)
        inside = bool(places.here.stack) or in_loss
        older = inside and before is not None and before.number < places.step
        registered = not source.dim() or isinstance(source, nn.Parameter)
        held = naming.kept_by_user(self._state, frame, before) if older and before and not registered else None
        later = bool(kwargs.get("non_blocking")) or any(value is True for value in args[1:3])
        self._state.traffic.hop(birth, before, source, result, held, later=later)

    def _copied(self, args: tuple[Any, ...], kwargs: Any, site: RawSite | None) -> None:
        """`host.copy_(tensor, non_blocking=True)`: the buffer that was there before is not ready yet."""
        later = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
        source = args[1] if len(args) > 1 else kwargs.get("src")
        arrives = isinstance(source, torch.Tensor) and is_accelerator(source.device) and args[0].device.type == "cpu"
        if not later or not arrives:
            return
        births = self._state.births
        birth = Birth(args[0], self._state.log.number(), "copy_", site, direct=True, is_move=True)
        births.put(args[0], birth)
        self._state.traffic.hop(birth, births.get(source), source, args[0], None, later=True)

    def _waited(self, name: str, args: tuple[Any, ...], frame: FrameType, site: RawSite | None) -> None:
        """A value was handed to Python."""
        tensor = args[0] if args else None
        if not isinstance(tensor, torch.Tensor):
            return
        birth = self._state.births.get(tensor)
        came = birth.hop.source if birth is not None and birth.hop is not None else tensor.device
        if birth is not None and birth.hops:
            self._state.traffic.used(birth, site)
        if is_accelerator(came):
            self._state.traffic.wait(name, came, site, library=not _calls_itself(frame, site))

    def _data_replaced(self, args: tuple[Any, ...]) -> None:
        """`parameter.data = moved`, which is how `Module.to` moves: the parameter lives where the new data was put."""
        if len(args) == 2 and isinstance(args[0], torch.Tensor) and isinstance(args[1], torch.Tensor):
            birth = self._state.births.get(args[1])
            if birth is not None:
                self._state.births.put(args[0], birth)
        elif len(args) == 2 and type(args[1]) is bool:  # `parameter.requires_grad = False`
            self._switched(args[0], on=args[1])

    def _switched(self, tensor: Any, *, on: bool) -> None:
        """A parameter is frozen, or freed."""
        if on:
            self._state.frozen.pop(tensor, None)  # type: ignore[no-untyped-call]
        elif isinstance(tensor, nn.Parameter):
            self._state.frozen[tensor] = True


def _calls_itself(frame: FrameType, site: RawSite | None) -> bool:
    """True if the user's line makes the torch call itself, and not a library on its behalf."""
    near = caller(frame)
    return site is not None and near is not None and near.f_code is site.code


def _rows(name: str, args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The operands of each result: an operator over lists pairs them item by item, `max` and `split` use all for all."""
    if name.startswith("_foreach"):
        return zip(*(arg for arg in args if type(arg) in (tuple, list)), strict=False)
    return itertools.repeat(args)


def _operands(args: tuple[Any, ...], kwargs: Any) -> Iterator[torch.Tensor]:
    """Tensors among the arguments, lists opened one level."""
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif type(arg) in (list, tuple):
            for part in arg:
                if isinstance(part, torch.Tensor):
                    yield part
