"""A small model of CUDA's device rules, written independently of the simulator, for random programs to be held against."""

from dataclasses import dataclass

CPU = "cpu"


class Refused(Exception):
    """CUDA would raise."""


@dataclass
class Value:
    """What the model knows of a tensor; views of one base share `home`, a list with one device."""

    home: list
    is_scalar: bool
    grad_home: str | None = None

    @property
    def device(self):
        return self.home[0]


def born(device, is_scalar):
    return Value([device], is_scalar)


def moved(value, device):
    """A move makes a new tensor, unless it is there already."""
    return value if value.device == device else Value([device], value.is_scalar)


def view(value):
    return Value(value.home, value.is_scalar)


def elementwise(*values, out=None):
    """All on one device, save for one CPU scalar beside GPU tensors; the result of an in-place operation is no input."""
    gpus = [v.device for v in ([out] if out else []) + list(values) if v.device != CPU]
    common = gpus[0] if gpus else CPU
    scalars = 0
    for value in values:
        if value.device == common:
            continue
        if value.device == CPU and value.is_scalar:
            scalars += 1
            if scalars > 1:
                raise Refused
        else:
            raise Refused
    if out is not None and out.device != common:
        raise Refused
    return Value([common], all(v.is_scalar for v in values))


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
    return Value([values[0].device], False)


def indexed(value, index):
    if index.device not in (CPU, value.device):
        raise Refused
    return Value([value.device], False)
