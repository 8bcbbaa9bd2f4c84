"""A function mode above autograd that sees each torch call of the user and remembers which line created which tensor."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.faults.failed_call import NOT_OURS
from devwidget.capture.object_fields import SCALAR_IDS, is_a, parts_of
from devwidget.capture.patching.mode_stack import FunctionMode
from devwidget.capture.recording.births import Birth, FailedCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.recording.transfers import VIEWS
from devwidget.capture.recording.waits import LISTS, READS
from devwidget.capture.source_code.arguments import where_left_out
from devwidget.capture.source_code.call_sites import RawSite, callers, site_of
from devwidget.capture.source_code.stack import caller, frames_at_work, locals_of
from devwidget.capture.source_code.statements import MOVES
from devwidget.capture.tensors import is_module, is_parameter, is_tensor, tensors_in
from devwidget.records.errors import error_text

_BACKWARD = frozenset({"backward", "grad"})
_AUTOGRAD = (torch_internals.TENSOR_METHODS, "torch.autograd")
_MORE = READS | LISTS | {"__set__", "__setitem__", "copy_"}
"""Calls that have an effect besides their result."""
_MAKING = LISTS | {"copy_"}
_QUESTIONS = frozenset({"size", "dim", "numel", "stride", "_set_grad_enabled"})
"""Calls that are answered at once. The last one is what `no_grad` switches: a signal right after it would leave it switched."""
_Tensor, _Parameter, _Size, _FLOAT64 = torch.Tensor, torch.nn.Parameter, torch.Size, torch.float64
_DisableTorchFunction = torch_internals.DisableTorchFunction
_SMALL = 16 << 20
"""Bytes of an operand that is kept after its call has failed."""


class TorchCall(NamedTuple):
    """A torch call that has returned.

    Attributes:
        frame: who called torch.
        site: the user's line, at that frame or above.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    frame: FrameType
    site: RawSite | None

    def is_direct(self) -> bool:
        """Return whether the user's line makes the call itself, not a library on its behalf."""
        return calls_itself(self.frame, self.site)

    def only_looks(self) -> bool:
        """Return whether a parameter is only viewed and not computed with: `weight.t()`, `weight[3]`, but not
        `weight[rows]`."""
        if self.name == "__getitem__":
            return not is_a(self.args[1], (torch.Tensor, tuple, list))
        return self.name in VIEWS


class BirthMode(FunctionMode):
    """Remembers where tensors are created. All else that a call means is left to `CallMode`. One instance per thread."""

    def __init__(self, state: RecordingState) -> None:
        super().__init__()
        self._state = state
        self._site, self._threads = state.tracker.find_site, state.tracker.threads

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _QUESTIONS:
            return func(*args, **(kwargs or {}))
        # C has no frames: the next one is who called torch, however many kernels and bindings lie between.
        frame = sys._getframe(1)
        if name == "__get__":  # an attribute such as `x.shape`
            out = func(*args)
            if out is None:
                self._nothing_read(func, args[0], frame)
            return out
        kwargs, here = kwargs or {}, self._threads.place
        site = self._site(frame)
        try:
            if name in _BACKWARD and getattr(func, "__module__", "").startswith(_AUTOGRAD):
                out = self._run_backward(func, args, kwargs, site)
            else:
                here.site = site
                out = func(*args, **kwargs)
        except Exception as error:
            here.waits = None
            out = self._run_healed_call(func, args, kwargs, error, frame)
            if out is NOT_OURS:
                raise
        finally:
            here.site = None
        self._note_call(TorchCall(name, args, kwargs, frame, site), out)
        return out

    def _note_call(self, call: TorchCall, out: Any) -> None:
        try:
            if type(out) is not _Size:  # the most frequent question
                with _DisableTorchFunction():  # our reads must not call the user's modes and tensor classes
                    if type(out) is _Tensor and call.name not in _MORE:
                        self._note_birth(call, out)
                    else:
                        self._note_returned(call, out)
            if self._threads.place.waits is not None:
                self._state.waits.count_call(call.name, call.args, call.kwargs, call.frame)
        except Exception as error:  # a bug of ours, or a tensor class that answers no question
            self._state.log.log_trouble(error)

    def _note_returned(self, call: TorchCall, out: Any) -> None:
        """Note a result that is not a plain tensor or has other effects."""
        if call.name in _MORE:
            self._note_more(call)
            if call.name not in _MAKING:
                return
        if is_tensor(out):
            self._note_birth(call, out)
        elif is_a(out, (tuple, list)):
            for part, operands in zip(parts_of(out), _pair_operands(call.name, call.args), strict=False):
                for result in tensors_in(part, depth=1):  # an LSTM's states are a tuple in a tuple
                    self._note_birth(call._replace(args=operands), result)

    def _note_birth(self, call: TorchCall, result: torch.Tensor) -> None:
        state = self._state
        operands = self._read_operands(call, result)
        if operands is None:  # it was written in place, and keeps its birth
            return
        parent, data, weights = operands
        if result.dtype is _FLOAT64 and call.name not in MOVES:
            self._note_float64(call, result)
        number = state.log.number()
        if parent is None or parent.dtype is not result.dtype:
            birth = self._find_decision(call, number, result, parent)
            birth.weights = weights
        else:
            birth = Birth.derive_birth(result, number, parent)
            if data is None and call.name != "clone":  # the usual case: nothing else is noted
                state.births.add_birth(result, birth)
                return
        if data is not None:
            birth.transfers = data.transfers
            birth.transfer = data.transfer if call.name in VIEWS else None
        if call.name == "clone":  # it stays behind when what it copies moves on; `copy.deepcopy` makes a Parameter of it unseen
            birth.call, birth.site, birth.direct = call.name, call.site, call.is_direct()
            state.births.put_storage(result, birth)
        state.births.put_birth(result, birth)
        if birth.direct and call.name in MOVES:
            self._note_move(call, result, birth)

    def _read_operands(self, call: TorchCall, result: torch.Tensor) -> tuple[Birth | None, Birth | None, Birth | None] | None:
        """Return what a result derives from, the copied data in it, and the weights it was computed with.

        None if the result is one of the operands. A result of weights and other operands derives from neither.
        """
        births, name, device, dtype = self._state.births, call.name, result.device, result.dtype
        known = births.tensors
        is_computing = name not in MOVES and name not in VIEWS
        parent: Birth | None = None
        data: Birth | None = None
        weights: Birth | None = None
        has_others = False
        for tensor in _flatten_arguments(call.args, call.kwargs):
            if tensor is result:
                return None
            birth = known.get(id(tensor))
            if birth is None or birth() is not tensor:
                birth = births.birth_of(tensor)
            is_there = tensor.device == device
            if birth.transfers:
                if data is None or len(birth.transfers) > len(data.transfers):  # `x + layer(x)` has been where the layer was
                    data = birth
                if is_computing:
                    self._note_use(birth, call.site, there=is_there)
            if not is_there:
                if name == "__getitem__":
                    self._looked_up(tensor, device, call)
                continue
            if parent is None or (parent.dtype is not dtype is birth.dtype):
                parent = birth
            if type(tensor) is not _Tensor and is_parameter(tensor) and not call.only_looks():
                weights = birth
            else:
                has_others = True
        if has_others and weights is not None:
            parent = None
        return parent, data, weights

    def _note_move(self, call: TorchCall, result: torch.Tensor, birth: Birth) -> None:
        if call.site is not None and call.site.code.co_name in MOVES:
            birth.asked = tuple(callers(call.frame, MOVES))
        self._state.attempts.put_birth(call.args[0], birth)
        if birth.is_move:
            self._note_transfer(birth, call, result)

    def _find_decision(self, call: TorchCall, number: int, result: torch.Tensor, parent: Birth | None) -> Birth:
        """Return what decided the device: a factory, a move, a cast, or the weights of a layer."""
        known: dict[str, Any] = {"call": call.name, "site": call.site, "direct": call.is_direct()}
        if call.name in MOVES and parent is None:
            known |= {"is_move": True, "origin": self._state.births.find_birth(call.args[0])}
        birth = Birth.make_birth(result, number, parent, **known)
        if call.site is not None and call.site.code.co_name == "__init__":
            birth.built = _find_construction(call.frame)
        if birth.direct and "device" in call.kwargs and call.kwargs["device"] is None:
            birth.asked = tuple(where_left_out(call.frame, "device"))
        return birth

    def _note_more(self, call: TorchCall) -> None:
        """Handle `parameter.data = moved`, which is how `Module.to` moves: the parameter is now where the new data is."""
        args = call.args
        if call.name == "__set__" and len(args) == 2 and is_tensor(args[0]) and is_tensor(args[1]):
            birth = self._state.births.find_birth(args[1])
            if birth is not None:
                before = birth.find_root().origin
                if before is not None:
                    before.making_birth().moved_on = True
                self._state.births.put_birth(args[0], birth)

    # -- what `CallMode` does more

    def _run_backward(self, func: Any, args: tuple[Any, ...], kwargs: Any, site: RawSite | None) -> Any:
        """Run autograd, in which hooks and functions of the user have lines of their own."""
        return func(*args, **kwargs)

    def _run_healed_call(self, func: Any, args: tuple[Any, ...], kwargs: Any, error: Exception, frame: FrameType) -> Any:
        """Return the result of the repaired call; NOT_OURS for an unrelated exception."""
        try:
            with _DisableTorchFunction():
                self._keep_operands(args, kwargs, error)
        except Exception as trouble:  # a tensor class that answers no question; the exception of the user goes its way
            self._state.log.log_trouble(trouble)
        return NOT_OURS

    def _keep_operands(self, args: tuple[Any, ...], kwargs: Any, error: Exception) -> None:
        """Keep the operands of a failed call. The innermost call counts, because functions around it re-raise."""
        births = self._state.births
        tensors = _flatten_arguments(args, kwargs)
        given = tuple(tensor for tensor in tensors if tensor.numel() * tensor.element_size() <= _SMALL)
        has_mixed = len({tensor.device for tensor in given}) > 1 or len({tensor.dtype for tensor in given}) > 1
        if has_mixed and (births.failed is None or births.failed.number != id(error)):
            births.failed = FailedCall(id(error), error_text(error), given)

    def _nothing_read(self, func: Any, owner: Any, frame: FrameType) -> None:
        """Note that an attribute is None."""

    def _note_use(self, birth: Birth, site: RawSite | None, *, there: bool) -> None:
        """Note that copied data was computed with."""

    def _looked_up(self, index: torch.Tensor, device: torch.device, call: TorchCall) -> None:
        """Note that a tensor was indexed by a tensor on another device."""

    def _note_float64(self, call: TorchCall, result: torch.Tensor) -> None:
        """Note a float64 result."""

    def _note_transfer(self, birth: Birth, call: TorchCall, result: torch.Tensor) -> None:
        """Note that a line of the user moved a tensor."""


def _find_construction(frame: FrameType) -> RawSite | None:
    """Return where user code builds the outermost of the modules whose constructors are running."""
    for each in frames_at_work(frame):
        code = each.f_code
        if code.co_name != "__init__" or not code.co_argcount or not is_module(locals_of(each).get(code.co_varnames[0])):
            return site_of(each)
    return None


def calls_itself(frame: FrameType, site: RawSite | None) -> bool:
    """Return whether the user's line makes the torch call itself, not a library on its behalf."""
    if site is None:
        return False
    near = frame if frame.f_code is site.code else caller(frame)
    return near is not None and near.f_code is site.code


def _pair_operands(name: str, args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Return the operands of each result: an operator over lists pairs them item by item, `max` and `split` use all for all."""
    if name.startswith("_foreach"):
        return zip(*(arg for arg in args if isinstance(arg, tuple | list)), strict=False)
    return itertools.repeat(args)


def _flatten_arguments(args: tuple[Any, ...], kwargs: Any) -> list[Any]:
    """Return the tensor arguments, with lists and tuples opened one level."""
    opened: list[Any] = []
    for arg in (*args, *kwargs.values()):
        kind = type(arg)
        if kind is _Tensor or kind is _Parameter:
            opened.append(arg)
        elif id(kind) in SCALAR_IDS:
            continue
        elif kind is list or kind is tuple:
            opened += filter(is_tensor, arg)
        elif issubclass(kind, _Tensor):
            opened.append(arg)
    return opened
