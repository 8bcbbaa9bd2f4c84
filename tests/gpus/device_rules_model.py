"""A small model of CUDA's device rules, written independently of the simulator, for random programs to be held against."""

from dataclasses import dataclass

CPU = "cpu"


class Refused(Exception):
    """CUDA would raise."""


@dataclass(frozen=True)
class Value:
    """What the model knows of a tensor."""

    device: str
    is_scalar: bool


def moved(value, device):
    return Value(device, value.is_scalar)


def same(value):
    return value


def summed(value):
    return Value(value.device, True)


def elementwise(*values, out=None):
    """All on one device, save for one CPU scalar beside GPU tensors; the result of an in-place operation is no input."""
    gpus = [v.device for v in ([out] if out else []) + list(values) if v.device != CPU]
    common = gpus[0] if gpus else CPU
    strays = [value for value in values if value.device != common]
    if len(strays) > 1 or any(value.device != CPU or not value.is_scalar for value in strays):
        raise Refused
    if out is not None and out.device != common:
        raise Refused
    return Value(common, all(v.is_scalar for v in values))


def added_in_place(own, other):
    elementwise(own, other, out=own)
    return own


def addcmul(own, first, second):
    """Beside GPU tensors only the last factor may be a CPU scalar."""
    result = elementwise(own, first, second)
    if result.device != CPU and CPU in (own.device, first.device):
        raise Refused
    return result


def strict(*values):
    """Generated checks: all on one device, scalars too."""
    if len({v.device for v in values}) > 1:
        raise Refused
    return Value(values[0].device, False)


def indexed(value, index):
    if index.device not in (CPU, value.device):
        raise Refused
    return Value(value.device, False)
