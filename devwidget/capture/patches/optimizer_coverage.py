"""What no optimizer trains, noted when the recording ends and every optimizer has been seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from devwidget.capture.recording.state import RecordingState
from devwidget.records.trace import Fault


class UntrainedParameters:
    """Parameters that one optimizer does not have; what another one trains is taken out when the recording ends."""

    def __init__(self) -> None:
        self.trained: set[int] = set()
        self.older: set[int] = set()
        self.faults: dict[object, tuple[Fault, tuple[int, ...]]] = {}

    def mark_trained(self, parameters: Iterable[object]) -> None:
        """These have an optimizer."""
        self.trained.update(map(id, parameters))

    def write_untrained(self, state: RecordingState) -> None:
        """The recording is over: every optimizer that there is has been seen."""
        for fault in self.faults_left():
            state.log.log_fault(fault)

    def faults_left(self) -> Iterator[Fault]:
        """One fault for each optimizer that lacks what no other has."""
        for fault, ids in self.faults.values():
            left = tuple(o for o, key in zip(fault.operands, ids, strict=True) if key not in self.trained)
            if left:
                yield dataclasses.replace(fault, operands=left)
