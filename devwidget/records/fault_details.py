"""What is known of a fault of one family only: a record for each kind of problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.schema.fields import OneOf, Size
from devwidget.records.site import Site

StateHistory = Literal["", "moved", "put"]
MissingReason = Literal["", "frozen", "younger", "loss", "another model"]


@dataclass(frozen=True, slots=True)
class Compared(OneOf):
    """The program itself compares the devices of its tensors, and refuses."""


@dataclass(frozen=True, slots=True)
class NoKernel(OneOf):
    """There is no kernel for this dtype."""

    dtype: str


@dataclass(frozen=True, slots=True)
class WrongDtype(OneOf):
    """Types that do not mix: the dtype of the others, or of a tensor that cannot hold a constant."""

    wanted: str
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class NotBuilt(OneOf):
    """A device of a kind that this version of torch cannot use."""

    version: str


@dataclass(frozen=True, slots=True)
class WrappedElsewhere(OneOf):
    """A wrapper names other devices than those on which its model was found."""

    device_ids: tuple[int, ...]
    found: tuple[DeviceId, ...]


@dataclass(frozen=True, slots=True)
class LostWrite(OneOf):
    """An attribute that a replica wrote, and lost."""

    attribute: str


@dataclass(frozen=True, slots=True)
class NoParameters(OneOf):
    """A replica has no parameters; one that it has by name."""

    attribute: str


@dataclass(frozen=True, slots=True)
class ScalarOutputs(OneOf):
    """The class of a module whose replicas each return a number, and the line that goes backward from what they gave."""

    owner: str
    replicas: Size
    backward: Site | None = None


@dataclass(frozen=True, slots=True)
class WrongAxis(OneOf):
    """Inputs are cut along an axis along which the batch is so long."""

    batch: Size
    dim: int


@dataclass(frozen=True, slots=True)
class NotCut(OneOf):
    """An argument of `forward`, its class and its entries, which each replica is given whole; faults that follow from it."""

    owner: str
    name: str
    samples: Size
    replicas: Size
    explains: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TooFewSamples(OneOf):
    """How many samples there are for how many replicas."""

    samples: Size
    replicas: Size


@dataclass(frozen=True, slots=True)
class StrayState(OneOf):
    """An optimizer's class and the name of the state that is elsewhere.

    Attributes:
        history: `moved` if the parameter moved after the state was allocated, `put` if the program put it there; "" if unknown.
    """

    optimizer: str
    state: str
    history: StateHistory = ""


@dataclass(frozen=True, slots=True)
class MissingParameters(OneOf):
    """Why an optimizer of this class lacks parameters.

    Attributes:
        reason: they were frozen; are younger than it; belong to the loss; or
            it has none of the model, but those of another one.
    """

    optimizer: str
    reason: MissingReason = ""


@dataclass(frozen=True, slots=True)
class WrongPrefix(OneOf):
    """A name in a checkpoint, and what the module of a class calls it; how many names of all miss by the prefix."""

    owner: str
    key: str
    right: str
    count: Size
    total: Size


FaultDetail = (
    Compared
    | NoKernel
    | WrongDtype
    | NotBuilt
    | WrappedElsewhere
    | LostWrite
    | NoParameters
    | ScalarOutputs
    | WrongAxis
    | NotCut
    | TooFewSamples
    | StrayState
    | MissingParameters
    | WrongPrefix
)
