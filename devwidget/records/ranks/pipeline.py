"""Pipeline: the schedule of a pipeline of stages, what each rank computes when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.schema.bounds import Size
from devwidget.records.schema.record import Record

ActionKind = Literal["forward", "backward", "input gradient", "weight gradient", "forward and backward"]


@dataclass(frozen=True, slots=True)
class PipelineAction:
    """What one rank computes without a pause.

    Attributes:
        kind: a `backward` computes both gradients.
        stage: of the model; of two at once that of the forward.
        microbatch: of it.
        start: units of time after the start of the step.
        width: units that it takes: a forward takes one, a backward two.
    """

    kind: ActionKind
    stage: Size
    microbatch: Size
    start: Size
    width: Size


@dataclass(frozen=True, slots=True)
class Pipeline(Record):
    """One step of a pipeline, as if every stage took as long as the others and messages took no time.

    Attributes:
        schedule: torch's name of it.
        stages: of the model, over all ranks.
        microbatches: of a batch.
        ranks: for each rank what it computes, in order.
    """

    schedule: str
    stages: Size
    microbatches: Size
    ranks: tuple[tuple[PipelineAction, ...], ...]

    @property
    def width(self) -> int:
        """Units of time that the step takes."""
        return max((action.start + action.width for actions in self.ranks for action in actions), default=0)

    @property
    def idle(self) -> float:
        """The share of the time in which ranks wait, over all of them: the bubble."""
        busy = sum(action.width for actions in self.ranks for action in actions)
        return 1 - busy / (self.width * len(self.ranks)) if self.width else 0.0
