"""Functions and classes that make tensors: factories, constructors of old (`torch.cuda.FloatTensor(2, 3)`), subclasses, fake
tensors.

Python sees the GPU that a subclass names, C++ must not: a CPU build of torch has no CUDA below Python, and autograd ends the
process when it meets a tensor that claims it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.dlpack

from devwidget.capture.devices import default_device, set_default_device
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.gpus import errors, labels, machine, tensors
from devwidget.gpus.labels import CPU, CPU_DEVICE, META, META_DEVICE, TEMPORARY
from devwidget.gpus.patching import Patches, overridable, replacing, wrap_with_refusal
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import (
    FakeTensor,
    FakeTensorMode,
    TensorBase,
    device_constructors,
    fake_answers,
    locate_name,
    tree_map_only,
)
from devwidget.records.schema.message import Message

TAKE_DEVICE = """arange empty empty_like empty_permuted empty_strided eye full full_like linspace logspace normal ones
ones_like rand rand_like randint randint_like randn randn_like randperm range scalar_tensor zeros zeros_like tril_indices
triu_indices hann_window hamming_window bartlett_window blackman_window kaiser_window """.split()
SPARSE = """sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor
sparse_compressed_tensor""".split()
TENSOR_METHODS = "new_empty new_empty_strided new_full new_ones new_zeros".split()


def install_factories(patches: Patches) -> None:
    """Replace the factories of torch."""
    # Cached by torch: asked before anything is replaced.
    device_constructors()
    for name in TAKE_DEVICE:
        patches.wrap(torch, name, accept_integer_device)
    for name in SPARSE:
        patches.wrap(torch, name, wrap_sparse)
    for name in TENSOR_METHODS:
        patches.wrap(torch.Tensor, name, accept_integer_device)
    for name in ("tensor", "as_tensor", "asarray"):
        patches.wrap(torch, name, wrap_from_data)
    patches.wrap(torch.nested, "nested_tensor", place_with_first)
    patches.wrap(torch.Tensor, "new_tensor", new_tensor)
    for owner, name in ((torch.Tensor, "__dlpack__"), (torch, "to_dlpack"), (torch.utils.dlpack, "to_dlpack")):
        patches.wrap(owner, name, refuse_gpu_memory)
    patches.wrap(torch, "from_dlpack", from_dlpack)
    patches.wrap(torch.utils.dlpack, "from_dlpack", from_dlpack)


@replacing
def accept_integer_device(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same factory, for which `device=1` is a GPU: C++ would ask for an accelerator."""
    if isinstance(kwargs.get("device"), int):
        kwargs["device"] = tensors.as_device(kwargs["device"])
    if kwargs.get("out") is not None:
        name_out_device(kwargs)
    return original(*args, **kwargs)


def name_out_device(kwargs: dict[str, Any]) -> None:
    """Name the real device in a call that fills a given tensor: C++ compares them, the default device included.

    Raises:
        RuntimeError: if the tensor is of another kind. Source: `check_out_type_matches` in `python_torch_functions_manual.cpp`.
    """
    out, named = kwargs["out"], kwargs.get("device")
    asked = default_device() if named is None else torch.device(named)
    if named is None and asked.type == "cpu":
        return
    if asked.type != labels.device_of(out).type:
        raise RuntimeError(
            f"device type {asked.type} does not match device type of out parameter ({labels.device_of(out).type})"
        )
    kwargs["device"] = CPU_DEVICE if simulation.compute else META_DEVICE


@overridable(torch)
def wrap_from_data(original: Callable[..., torch.Tensor], data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.tensor` and its kin: they fill a CPU tensor behind the modes' back and move it there."""
    device = kwargs.pop("device", None)
    if isinstance(data, torch.Tensor) and original.__name__ != "tensor":
        return _as_tensor(original, data, device, args, kwargs)
    label = _label_for(data, device)
    pinned = kwargs.pop("pin_memory", False)
    kwargs["device"] = META_DEVICE if label == META and simulation.compute else CPU_DEVICE
    if isinstance(data, torch.Tensor) and labels.label_of(data) >= 0:
        data = data.cpu()
    result = _own_memory(original(simulation.values.read_numbers(data), *args, **kwargs), label)
    if pinned and label == CPU:
        return labels.mark_pinned(result)
    return _label_result(result, label)


@replacing
def wrap_sparse(original: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """Sparse factories: they convert lists behind the modes' back, so the tensor is moved when it is complete."""
    values = kwargs.get("values", next((arg for arg in reversed(args) if isinstance(arg, torch.Tensor)), None))
    device = kwargs.pop("device", None)
    if isinstance(values, torch.Tensor):
        if device is None:
            _check_parts(original.__name__, kwargs.get("indices", args[0] if args else None), values)
            device = labels.device_for_label(labels.own_label(values))
        args, kwargs = _make_indices(original.__name__, args, kwargs)
    if device is not None:
        device = tensors.as_device(device)
        args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (args, kwargs))
    result = original(*args, **kwargs)
    if device is None:
        return result
    return result.to(device)


def _check_parts(name: str, indices: Any, values: torch.Tensor) -> None:
    if name != "sparse_coo_tensor" or not isinstance(indices, torch.Tensor):
        return
    here, there = (str(labels.device_of(tensor)) for tensor in (indices, values))
    if here != there:
        raise errors.checked_argument("values", there, here, "__sparse_coo_tensor_with_dims_and_tensors", "Sparse")


def _make_indices(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with tensors for indices that are written as numbers: they go where the values are."""
    count = 1 if name == "sparse_coo_tensor" else 2
    indices = (torch.tensor(part) if isinstance(part, list) else part for part in args[:count])
    named = {key: torch.tensor(value) for key, value in kwargs.items() if key.endswith("indices") and isinstance(value, list)}
    return (*indices, *args[count:]), kwargs | named


@replacing
def place_with_first(
    original: Callable[..., torch.Tensor], tensor_list: Any, *, device: Any = None, **kwargs: Any
) -> torch.Tensor:
    """`torch.nested.nested_tensor`, which goes where the first of its tensors is, and reads that in C++."""
    first = next(iter(tensor_list), None)
    if device is None and isinstance(first, torch.Tensor):
        device = labels.device_for_label(labels.own_label(first))
    return original(tensor_list, device=tensors.as_device(device), **kwargs)


def _label_for(data: Any, device: Any) -> int:
    """Where the result goes: where it is told to, else where the data are."""
    if device is not None:
        return tensors.label_of_device(device)
    if isinstance(data, torch.Tensor):
        return max(labels.label_of(data), CPU)
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    if isinstance(data, torch.Tensor) and data.dim() > 0:
        return max(labels.label_of(data), CPU)
    return CPU


def _as_tensor(original: Any, data: torch.Tensor, device: Any, args: Any, kwargs: Any) -> torch.Tensor:
    dtype = kwargs.get("dtype") or (args[0] if args else None) or data.dtype
    if device is not None:
        result = data.to(tensors.as_device(device), dtype, copy=bool(kwargs.get("copy")))
    else:
        result = data.to(dtype, copy=bool(kwargs.get("copy")))
    requires_grad = kwargs.get("requires_grad")
    if requires_grad is None:
        return result
    return result.detach().requires_grad_(requires_grad)


def _own_memory(tensor: torch.Tensor, label: int) -> torch.Tensor:
    """A GPU never shares memory with numpy: where the factory would, copy."""
    if label >= 0 and not tensor.untyped_storage().resizable():
        return tensor.clone()
    return tensor


def _label_result(tensor: torch.Tensor, label: int) -> torch.Tensor:
    tensor = simulation.values.strip_values(tensor)
    if label >= 0 or (label == META and not simulation.compute):
        labels.put_label(tensor, label)
    return tensor


def refuse_gpu_memory(original: Callable[..., Any]) -> Callable[..., Any]:
    """What hands the memory of a tensor to other libraries, which would take it for that of the CPU."""
    refused = wrap_with_refusal(
        Message("virtual GPUs hand no memory to other libraries"),
        why=Message("what these found there would be the CPU's"),
        instead="x.cpu()",
    )(original)

    @functools.wraps(original)
    def to_dlpack(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return (refused if labels.label_of(tensor) >= 0 else original)(tensor, *args, **kwargs)

    return to_dlpack


@replacing
def from_dlpack(original: Callable[..., torch.Tensor], ext_tensor: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.from_dlpack`, which would take a tensor of torch's own by its real device."""
    if isinstance(ext_tensor, torch.Tensor):
        return ext_tensor.detach()
    return original(ext_tensor, **kwargs)


@overridable(torch.Tensor)
def new_tensor(original: Callable[..., torch.Tensor], self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.new_tensor`: on the device of the tensor, unless told otherwise."""
    device = kwargs.pop("device", None)
    if device is None:
        label = max(labels.label_of(self), CPU)
    else:
        label = tensors.label_of_device(device)
    if isinstance(data, torch.Tensor) and labels.label_of(data) >= 0:
        data = data.cpu()
    values = simulation.values
    return _label_result(original(values.read_values(self), values.read_numbers(data), **kwargs), label)


# Classes of tensors.


LEGACY_NAMES = "Float Double Half BFloat16 Byte Char Short Int Long Bool".split()


class _LegacyType(type):
    """Makes tensors when called, and answers `isinstance`, as torch's own tensor types do."""

    real: Any
    replaced: Any
    on_gpu: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not simulation.is_running:
            return cls.replaced(*args, **kwargs)  # type: ignore[no-any-return]
        usual = machine.current_index() if cls.on_gpu else CPU
        if args and isinstance(args[0], torch.Tensor) and (labels.label_of(args[0]) >= 0) != cls.on_gpu:
            raise TypeError(f"expected a tensor on {labels.name_of(usual)} (got one on {labels.device_of(args[0])})")
        label = pop_asked_label(kwargs, usual)
        tensor: torch.Tensor = cls.real(*args, **kwargs)
        return label_as_meant(tensor, label)

    def __instancecheck__(cls, instance: object) -> bool:
        if not simulation.is_running:
            return isinstance(instance, cls.replaced)
        if not isinstance(instance, torch.Tensor) or instance.dtype != cls.real.dtype:
            return False
        return (labels.label_of(instance) >= 0) == cls.on_gpu

    @property
    def dtype(cls) -> torch.dtype:
        """The dtype of its tensors."""
        return cls.real.dtype  # type: ignore[no-any-return]

    @property
    def is_cuda(cls) -> bool:
        """Whether its tensors are on a GPU."""
        return cls.on_gpu


def pop_asked_label(kwargs: dict[str, Any], usual: int) -> int:
    """The label of the device that is named, which is taken out of the keywords; a constructor has one kind of device.

    Raises:
        RuntimeError: in the words of torch, for the other kind. Source: `legacy_tensor_generic_ctor_new`.
    """
    device = kwargs.pop("device", None)
    if device is None:
        return usual
    label = tensors.label_of_device(device)
    if (label >= 0) != (usual >= 0):
        kinds = ["cuda" if each >= 0 else "cpu" for each in (usual, label)]
        raise RuntimeError("legacy constructor expects device type: {} but device type: {} was passed".format(*kinds))
    return label


def label_as_meant(tensor: torch.Tensor, label: int) -> torch.Tensor:
    """The tensor under the label that the user meant: a constructor looks like torch's own C++ code to the mode."""
    if label >= 0 or labels.label_of(tensor) == TEMPORARY:
        labels.put_label(tensor, label)
    return tensor


def install_legacy_types(patches: Patches) -> None:
    """Replace the constructors."""
    for name in LEGACY_NAMES:
        full = name + "Tensor"
        real = getattr(torch, full)
        for owner, module, on_gpu in ((torch, "torch", False), (torch.cuda, "torch.cuda", True)):
            if hasattr(owner, full):
                names = {"real": real, "replaced": getattr(owner, full), "on_gpu": on_gpu, "__module__": module}
                names["__doc__"] = real.__doc__
                patches.set(owner, full, _LegacyType(full, (), names))
    patches.set(torch.Tensor, "__new__", staticmethod(_new_tensor))
    patches.wrap(torch.Tensor, "new", wrap_new)
    patches.wrap(torch, "set_default_tensor_type", accept_gpu_types)
    before, dtype = default_device(), torch.get_default_dtype()
    patches.undo.add_step(_put_defaults_back, before, dtype)


def _new_tensor(cls: type[torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    tensor: torch.Tensor
    if cls is not torch.Tensor:
        # What an operator returns through a mode is an object of Python already, and torch cannot make it another class.
        with hide_from_modes():
            return TensorBase.__new__(cls, *args, **kwargs)  # type: ignore[no-any-return]
    tensor = TensorBase.__new__(cls, *args, **kwargs)
    # Without arguments nothing is allocated that looks like a temporary.
    if args:
        return label_as_meant(tensor, CPU)
    return tensor


@overridable(torch.Tensor)
def wrap_new(original: Callable[..., torch.Tensor], self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.new`: a tensor on the same device."""
    label = pop_asked_label(kwargs, max(labels.label_of(self), CPU))
    return label_as_meant(original(self, *args, **kwargs), label)


@replacing
def accept_gpu_types(original: Callable[[Any], None], t: Any) -> None:
    """`torch.set_default_tensor_type`, for the types of GPUs too."""
    if isinstance(t, str):
        name = t
    else:
        name = f"{t.__module__}.{t.__name__}"
    owner, _, kind = name.rpartition(".")
    original(getattr(torch, kind).real)
    set_default_device("cuda" if owner == "torch.cuda" else None)


def _put_defaults_back(device: torch.device, dtype: torch.dtype) -> None:
    """A default GPU would outlive the simulation."""
    if default_device().type == "cuda":
        set_default_device(None if device.type == "cpu" else device)
        torch.set_default_dtype(dtype)


DEVICE_AT = 7
"""Place of `device` among the arguments. Source: `THPVariable_make_wrapper_subclass` in `python_variable.cpp`."""


def install_subclass_makers(patches: Patches) -> None:
    """Replace the functions with which Python makes such tensors."""
    for name, wrapper in {"_make_wrapper_subclass": wrap_make_wrapper, "_make_subclass": wrap_make_subclass}.items():
        patches.set(torch.Tensor, name, staticmethod(wrapper(getattr(torch.Tensor, name))))


def wrap_make_wrapper(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A wrapper of tensors of its own: it shows the device that it names, and takes no memory."""

    @functools.wraps(original)
    def _make_wrapper_subclass(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = kwargs.get("device", args[DEVICE_AT] if len(args) > DEVICE_AT else None)
        if given is None or torch.device(tensors.as_device(given)).type != "cuda":
            return original(*args, **kwargs)
        if "device" in kwargs:
            kwargs["device"] = CPU_DEVICE
        else:
            args = (*args[:DEVICE_AT], CPU_DEVICE, *args[DEVICE_AT + 1 :])
        result = original(*args, **kwargs)
        labels.name_wrapper(result, tensors.label_of_device(given))
        return result

    return _make_wrapper_subclass


def wrap_make_subclass(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A tensor under another class; fake ones choose the kernels of a device by `device_for_backend_keys`."""

    @functools.wraps(original)
    def _make_subclass(*args: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device_for_backend_keys")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device_for_backend_keys"] = CPU_DEVICE
        return original(*args, **kwargs)

    return _make_subclass


_DEVICE = torch.ops.prim.device.default


def install_fake_devices(patches: Patches) -> None:
    """Answer what C++ asks of fake tensors."""
    fake: Any = FakeTensor
    patches.set(fake, "__torch_dispatch__", classmethod(wrap_fake_dispatch(vars(fake)["__torch_dispatch__"].__func__)))
    handlers: Any = fake_answers
    original = handlers[_DEVICE]
    patches.set(*locate_name("fake_answers"), handlers | {_DEVICE: lambda args: hide_gpu(original(args))})
    if not simulation.compute:
        # Theirs are on meta, which torch's own code for them asks for: not of tensors of a program, which are all on meta here.
        patches.set(fake, "__new__", staticmethod(see_real_devices(fake.__new__)))
        patches.wrap(FakeTensorMode, "__torch_dispatch__", see_real_devices)
    # It would make a tensor on a GPU, which takes memory.
    patches.set(*locate_name("init_gpu_context"), lambda device: None)


def see_real_devices(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that is to see where tensors really are."""

    @functools.wraps(original)
    def run_inside(*args: Any, **kwargs: Any) -> Any:
        labels.inside.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            labels.inside.depth -= 1

    return run_inside


def wrap_fake_dispatch(original: Callable[..., Any]) -> Callable[..., Any]:
    """`FakeTensor.__torch_dispatch__`."""

    @functools.wraps(original)
    def __torch_dispatch__(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = original(cls, func, types, args, kwargs or {})
        if func is _DEVICE:
            return hide_gpu(result)
        return result

    return __torch_dispatch__


def hide_gpu(device: torch.device) -> torch.device:
    """The device that C++ may know of."""
    if device.type == "cuda":
        return CPU_DEVICE
    return device
