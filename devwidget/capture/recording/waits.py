"""Syncs by line: how often, in how many steps, and whether the step itself syncs."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.recording.allowed_transfers import AllowedTransfer, why_allowed
from devwidget.capture.recording.event_log import make_record
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.source_code.call_sites import RawSite, call_text, line_of, site_of
from devwidget.capture.source_code.stack import Owner, locals_of, stack, user_frame
from devwidget.capture.tensors import is_module
from devwidget.records.trace import Phase, Wait

READS = frozenset({"item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__complex__", "numpy", "__array__"})
"""Calls that pass a value to Python. On an accelerator the host syncs until it is computed."""
LISTS = frozenset({"tensor", "as_tensor", "asarray"})
"""Calls that read values one by one from a list of tensors."""
_FORMATS = frozenset({"__repr__", "__str__", "__format__"})
"""Calls that read any number of values: they count once."""
_HOST = torch.device("cpu")
_COUNTER = getattr(torch_internals.read_counter, "__code__", None)
"""Code in which an optimizer of torch reads a `step` counter of its state."""
_STEPS = frozenset({"forward", "loss", "backward", "optimizer"})
_FILES = (
    "_tensor.py",
    "_tensor_str.py",
    "functional.py",
    "_jit_internal.py",
    "overrides.py",
    os.path.join("nn", "functional.py"),
)
_FUNCTIONS = tuple(os.path.join(os.path.dirname(torch.__file__), name) for name in _FILES)
"""Where torch keeps Python functions that a program calls itself, such as `torch.unique` and `print(tensor)`."""


@dataclass(frozen=True, slots=True)
class _WaitLine:
    """What syncs of one line have in common."""

    call: str
    device: torch.device
    module: str | None
    phase: Phase
    site: RawSite | None
    called: RawSite | None
    library: bool
    in_step: bool
    meant: str


@dataclass(slots=True)
class _Times:
    """How often, and in how many turns of the program's loop."""

    count: int = 0
    turns: int = 0
    last: int = -1

    def add_turn(self, times: int, turn: int) -> None:
        self.count += times
        self.turns += turn != self.last
        self.last = turn


@dataclass(slots=True)
class Waits:
    """The syncs of one recording.

    Between a forward pass and `backward` it is not known yet whether a loss is computed or a result is inspected: such syncs
    are assigned when the program runs backward, or the next step.
    """

    tracker: ModuleTracker
    allowed: tuple[AllowedTransfer, ...] = ()
    lines: dict[_WaitLine, _Times] = field(default_factory=dict)
    read: dict[tuple[RawSite | None, torch.device], tuple[str, RawSite | None]] = field(default_factory=dict)
    _undecided: list[tuple[_WaitLine, int, int]] = field(default_factory=list)

    def note_wait(self, device: torch.device, *, copies: bool = False) -> None:
        """Note that an operator synced in a call of the program, which is counted at its end."""
        here = self.tracker.here
        _, times, before = here.waits or (device, 0, True)
        here.waits = device, times + 1, before and copies

    def count_call(self, call: str, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None) -> None:
        """Count a call in which operators synced."""
        here = self.tracker.here
        if here.waits is None:
            return
        (device, times, copies), here.waits = here.waits, None
        if copies and call == "__setitem__":
            call = "copy_"
        if not (call == "one_hot" and (len(args) > 1 or "num_classes" in kwargs)):  # reads nothing but on the CPU
            self.add_wait(call, device, frame, 1 if call in _FORMATS else times)

    def add_wait(self, call: str, device: torch.device, frame: FrameType | None, times: int = 1) -> None:
        """Record a sync in a call; `frame` made the call."""
        tracker = self.tracker
        made = tracker.forward_nodes.find_site()
        near, library = _find_waiting(frame, (Owner.STEP,) if made is None else (Owner.STEP, Owner.ENGINE))
        if library and any(each.f_code is _COUNTER for _, each in stack(frame)):
            call = "step"
        site = site_of(near) if near is not None else made
        user = user_frame(near)
        called = site_of(user) if user is not None and user is not near else None
        module, phase = tracker.module, tracker.phase
        in_step, meant = bool(tracker.here.stack) or tracker.forced in _STEPS, why_allowed(device, _HOST, self.allowed)
        if not in_step and (owner := _forward_above(near)) is not None:
            module, phase, in_step = tracker.path_of(owner), "forward", True
        line = _WaitLine(call, device, module, phase, site, called, library, in_step, meant)
        if phase != "loss" or in_step:
            self._keep_line(line, times, tracker.turn)
            return
        if self._undecided and self._undecided[-1][2] != tracker.turn:
            self._decide()  # the program went on without going back
        self._undecided.append((line, times, tracker.turn))

    def go_back(self, loop: CodeType | None) -> None:
        """Note that gradients are computed: syncs since the last model call belong to the loss, or to the loop around it."""
        self._decide(self.tracker.turn, loop)

    def _decide(self, loss_turn: int | None = None, loop: CodeType | None = None) -> None:
        """Assign the syncs of a turn to its loss. In other turns no loss was computed."""
        undecided, self._undecided = self._undecided, []
        for line, times, turn in undecided:
            code = line.site.code if line.site is not None else None
            if turn == loss_turn:
                line = replace(line, in_step=code is not loop and code not in self.tracker.callers)
            else:
                line = replace(line, phase="other")
            self._keep_line(line, times, turn)

    def _keep_line(self, line: _WaitLine, times: int, turn: int) -> None:
        self.lines.setdefault(line, _Times()).add_turn(times, turn)

    def list_facts(self) -> dict[str, Any]:
        """Return the syncs by first time."""
        self._decide()
        folded: dict[Wait, tuple[int, int]] = {}
        for line, times in self.lines.items():  # one line has several places: Python replaces calls by faster ones as they run
            call, site = self.read.get((line.site, line.device), (line.call, line.site))
            if site is None or line.site is None or site.code is not line.site.code or line_of(site) != line_of(line.site):
                site = line.site
            wait = make_record(Wait, line, call=call, expression=call_text(site), count=0)
            count, turns = folded.get(wait, (0, 0))
            folded[wait] = count + times.count, turns + times.turns
        return {"waits": tuple(replace(wait, count=count, turns=turns) for wait, (count, turns) in folded.items())}


def _find_waiting(frame: FrameType | None, ends: tuple[Owner, ...]) -> tuple[FrameType | None, bool]:
    """Return the innermost frame of the user or of a library other than torch, and whether a library syncs, torch included.

    Frames above the owners in `ends` did not request the call.
    """
    library = False
    for owner, each in stack(frame):
        if owner in ends:
            break
        if owner is Owner.USER or owner is Owner.LIBRARY:
            return each, library or owner is Owner.LIBRARY
        is_of_torch = owner is Owner.TORCH or owner is Owner.ENGINE
        library = library or (is_of_torch and not each.f_code.co_filename.startswith(_FUNCTIONS))
    return None, True


def _forward_above(frame: FrameType | None) -> nn.Module | None:
    """Return the module whose `forward` the program calls directly, as in `model.forward(x)`, above a frame; else None."""
    for _, each in stack(frame):
        code = each.f_code
        if code.co_name == "forward" and inspect.CO_OPTIMIZED & code.co_flags and code.co_argcount:
            owner = locals_of(each).get(code.co_varnames[0])
            if is_module(owner):
                return owner
    return None
