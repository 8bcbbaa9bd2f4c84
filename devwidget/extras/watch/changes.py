"""Changes during training: the device of the model, its inputs, and its first evaluation."""

from __future__ import annotations

import math
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from torch import nn

from devwidget.capture.recording.event_log import device_id
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.tensors import device_of, named_tensors, shape_of, tensors_in
from devwidget.extras.watch.findings import tell_moved
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.schema.message import Message

MUCH_LARGER = 1.5
"""Growth of the inputs since the last report that counts as a new shape."""
_MOST_CHANGES, _MOST_TOLD = 50, 3


class RunChanges:
    """Changes of a run, each with its step; a recorded step is asked for if a change is worth one.

    Attributes:
        elements: Elements of the inputs of the last call in a step.
    """

    elements = 0

    def __init__(self, model: nn.Module, ask_for: Callable[[Message], None]) -> None:
        self._model, self._ask_for = weakref.ref(model), ask_for
        self._found: deque[tuple[int, Message]] = deque(maxlen=_MOST_CHANGES)
        self._most_elements = self._told_elements = 0
        self._input_devices: tuple[DeviceId, ...] | None = None
        self._trains_on: DeviceId | None = None
        self._evaluated: int | None = None

    def list_between(self, after: int, last: int) -> list[Message]:
        """Return the last changes after one step, up to another."""
        return [change for step, change in self._found if after < step <= last][-_MOST_TOLD:]

    def look_at_device(self, step: int, *, is_evaluation: bool) -> Finding | None:
        """Note the device of the first parameter; a finding if it differs from the last trained step."""
        model = self._model()
        parameter = next(named_tensors(model, "_parameters"), None) if model is not None else None
        if parameter is None:
            return None
        now, before = device_id(device_of(parameter[1])), self._trains_on
        if not is_evaluation:
            self._trains_on = now
        if before is None or now == before:
            return None
        self._note(step, Message("step {step}: parameters are on {device}", step=step, device=now))
        return tell_moved(step, before, now, to_site(raw_site(sys._getframe(1))), is_evaluation=is_evaluation)

    def look_at_inputs(self, step: int, inputs: Any) -> None:
        """Note the number of elements and the devices of the inputs."""
        tensors = list(tensors_in(inputs))
        devices = tuple(dict.fromkeys(device_id(device_of(tensor)) for tensor in tensors))
        if self._input_devices is not None and devices != self._input_devices:
            named = ", ".join(map(str, devices))
            self._note(step, Message("step {step}: the inputs of the model are on {devices}", step=step, devices=named))
        self._input_devices = devices
        elements = sum(math.prod(shape_of(tensor)) for tensor in tensors)
        self.elements = elements
        self._look_at_sizes(step, elements)

    def _look_at_sizes(self, step: int, elements: int) -> None:
        before, self._most_elements = self._most_elements, max(self._most_elements, elements)
        if elements > MUCH_LARGER * self._told_elements:
            if before:
                facts = {"step": step, "count": elements, "before": before}
                self._note(step, Message("step {step}: the inputs have {count} elements, before at most {before}", **facts))
            self._told_elements = elements

    def expect_evaluation(self, step: int, passes: int) -> None:
        """Ask for a recorded step at the second evaluation; the first cannot be foreseen."""
        if passes and self._evaluated is None:
            self._evaluated = step
            self._found.append((step, Message("step {step}: the first evaluation ran before it", step=step)))
        if self._evaluated is not None and step + 1 == 2 * self._evaluated:
            self._ask_for(Message("an evaluation was expected"))

    def _note(self, step: int, change: Message) -> None:
        self._found.append((step, change))
        self._ask_for(change)
