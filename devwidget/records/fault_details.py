"""Details of faults of one family: a record for each kind of problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.schema.fields import OneOf, Size
from devwidget.records.site import Site

MissingReason = Literal["", "loss", "another model"]


@dataclass(frozen=True, slots=True)
class Compared(OneOf):
    """The program itself compares the devices of its tensors and raises."""


@dataclass(frozen=True, slots=True)
class HookBypassed(OneOf):
    """A method of this class ran without a hook: accelerate did not move its inputs, or FSDP did not gather its parameters."""

    owner: str
    method: str


@dataclass(frozen=True, slots=True)
class NoKernel(OneOf):
    """There is no kernel for this dtype.

    Attributes:
        sizes: for a Fourier transform in float16, the sizes that have none.
        has_parts: the result is a tuple of tensors.
    """

    dtype: str
    sizes: tuple[Size, ...] = ()
    has_parts: bool = False


@dataclass(frozen=True, slots=True)
class AutocastRegion:
    """The line that begins an autocast region, and its device type; "" if unknown."""

    site: Site
    device: str = ""


@dataclass(frozen=True, slots=True)
class WrongDtype(OneOf):
    """Dtypes that do not mix: the dtype of the others, or of a tensor that cannot hold a constant.

    Attributes:
        autocast: the region that made an operand low precision, or one around the call that is for another device.
        backward: the hand-written `backward` that failed, whose gradients have the dtype of the outputs.
        has_gradient: an index carries a gradient, which a cast would drop.
    """

    wanted: str
    is_constant: bool = False
    autocast: AutocastRegion | None = None
    backward: Site | None = None
    has_gradient: bool = False


@dataclass(frozen=True, slots=True)
class HalfGradients(OneOf):
    """A GradScaler got float16 gradients: their number, the line that creates the optimizer, and the step's autocast region."""

    count: Size
    optimizer: Site | None = None
    autocast: AutocastRegion | None = None


@dataclass(frozen=True, slots=True)
class UnsafeLoss(OneOf):
    """A loss that autocast refuses, whether its input is the result of a sigmoid, and the region."""

    is_sigmoid: bool
    autocast: AutocastRegion | None = None


@dataclass(frozen=True, slots=True)
class NotBuilt(OneOf):
    """A device of a kind that this torch build does not support."""

    version: str


@dataclass(frozen=True, slots=True)
class NotVisible(OneOf):
    """Torch supports the device and finds none; the setting that hides all, such as `CUDA_VISIBLE_DEVICES=-1`, or ""."""

    hidden_by: str


@dataclass(frozen=True, slots=True)
class InWorker(OneOf):
    """A forked worker of a `DataLoader` uses an accelerator; the line of the loop over the loader."""

    loop: Site | None = None


@dataclass(frozen=True, slots=True)
class WrappedElsewhere(OneOf):
    """A wrapper names other devices than its model's.

    Attributes:
        device_ids: GPUs of the wrapper.
        found: devices of the parameters and buffers.
        given: devices of the arguments.
        split: whether whole layers are on different GPUs; `map` if a device map of accelerate put them there.
    """

    device_ids: tuple[int, ...]
    found: tuple[DeviceId, ...]
    given: tuple[DeviceId, ...] = ()
    split: Literal["", "layers", "map"] = ""


@dataclass(frozen=True, slots=True)
class LostWrite(OneOf):
    """An attribute that a replica wrote and lost."""

    attribute: str


@dataclass(frozen=True, slots=True)
class NoParameters(OneOf):
    """A replica has no parameters; the name of one that the model has."""

    attribute: str


@dataclass(frozen=True, slots=True)
class CallsOriginal(OneOf):
    """An attribute through which a replica calls the original module.

    Attributes:
        attribute: its name.
        function: the name of the function that it holds.
        device: where the original module is.
        explains: numbers of the faults that follow.
    """

    attribute: str
    function: str
    device: DeviceId
    explains: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalarOutputs(OneOf):
    """The class of a module whose replicas each return a number, and the line that calls backward on the gathered vector."""

    owner: str
    replicas: Size
    backward: Site | None = None


@dataclass(frozen=True, slots=True)
class WrongAxis(OneOf):
    """Inputs are split along the wrong axis, the axis that is as long as the batch, and how many samples reach no replica."""

    batch: Size
    dim: int
    lost: Size = 0


@dataclass(frozen=True, slots=True)
class NotCut(OneOf):
    """An argument of `forward`, its class and its entries, which each replica gets whole; faults that follow from it."""

    owner: str
    name: str
    samples: Size
    replicas: Size
    explains: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptWhole(OneOf):
    """An attribute that is as long as the batch, or is its length. Each replica gets all of it, but a part of the batch.

    Attributes:
        attribute: its name.
        samples: length of the batch.
        replicas: their number.
        given: a tensor argument of `forward`, which is split; "" for none.
    """

    attribute: str
    samples: Size
    replicas: Size
    given: str = ""


@dataclass(frozen=True, slots=True)
class NotJoined(OneOf):
    """Outputs of the replicas that cannot be gathered.

    Attributes:
        owner: the class of the module.
        names: the outputs: `output['count']`.
        problem: what differs between the replicas; `class` if no output of this class can be joined.
        first: the class, length, keys or shape of the first replica's output.
        other: the same of the replica that differs.
        given: a tensor argument of `forward`; "" for none.
    """

    owner: str
    names: tuple[str, ...]
    problem: Literal["class", "length", "keys", "shape"]
    first: str
    other: str = ""
    given: str = ""


@dataclass(frozen=True, slots=True)
class TooFewSamples(OneOf):
    """Number of samples and number of replicas."""

    samples: Size
    replicas: Size


@dataclass(frozen=True, slots=True)
class StrayState(OneOf):
    """An optimizer's class and the name of the misplaced state."""

    optimizer: str
    state: str


@dataclass(frozen=True, slots=True)
class MissingParameters(OneOf):
    """Why an optimizer of this class lacks parameters.

    Attributes:
        reason: they belong to the loss, or it has only the parameters of another model; "" if they are newer.
    """

    optimizer: str
    reason: MissingReason = ""


@dataclass(frozen=True, slots=True)
class WrongPrefix(OneOf):
    """A name in a checkpoint, the module's name for it, and how many names have the wrong prefix."""

    owner: str
    key: str
    right: str
    count: Size
    total: Size


FaultDetail = (
    Compared
    | HookBypassed
    | NoKernel
    | WrongDtype
    | HalfGradients
    | UnsafeLoss
    | NotBuilt
    | NotVisible
    | InWorker
    | WrappedElsewhere
    | LostWrite
    | NoParameters
    | CallsOriginal
    | ScalarOutputs
    | WrongAxis
    | NotCut
    | KeptWhole
    | NotJoined
    | TooFewSamples
    | StrayState
    | MissingParameters
    | WrongPrefix
)
