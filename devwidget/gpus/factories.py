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
from devwidget.gpus.patching import Patches, overrides, refusing, replaces
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import FakeTensor, FakeTensorMode, TensorBase, fake_answers, locate_name, tree_map_only
from devwidget.records.schema.message import Message

Original = Callable[..., Any]
_Tensor = torch.Tensor
TAKE_DEVICE = """arange empty empty_like empty_permuted empty_strided eye full full_like linspace logspace normal ones
ones_like rand rand_like randint randint_like randn randn_like randperm range scalar_tensor zeros zeros_like tril_indices
triu_indices hann_window hamming_window bartlett_window blackman_window kaiser_window """.split()
SPARSE = """sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor
sparse_compressed_tensor""".split()


@replaces(torch, *TAKE_DEVICE)
@replaces(_Tensor, *"new_empty new_empty_strided new_full new_ones new_zeros".split())
def _accept_integer_device(original: Original, *args: Any, **kwargs: Any) -> Any:
    """`device=1` is a GPU: C++ would ask for an accelerator."""
    if isinstance(kwargs.get("device"), int):
        kwargs["device"] = tensors.as_device(kwargs["device"])
    if kwargs.get("out") is not None:
        _name_out_device(kwargs)
    return original(*args, **kwargs)


def _name_out_device(kwargs: dict[str, Any]) -> None:
    """Name the real device in a call that fills a given tensor: C++ compares them, the default device included.

    Source: `check_out_type_matches` in `python_torch_functions_manual.cpp`.
    """
    named, own = kwargs.get("device"), labels.device_of(kwargs["out"]).type
    requested = default_device() if named is None else torch.device(named)
    if named is None and requested.type == "cpu":
        return
    if requested.type != own:
        raise RuntimeError(f"device type {requested.type} does not match device type of out parameter ({own})")
    kwargs["device"] = CPU_DEVICE if simulation.compute else META_DEVICE


@overrides(torch, "tensor", "as_tensor", "asarray")
def _from_data(original: Original, data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """They fill a CPU tensor behind the modes' back and move it."""
    device = kwargs.pop("device", None)
    if isinstance(data, torch.Tensor) and original.__name__ != "tensor":
        return _as_tensor(data, device, args, kwargs)
    label = _label_for(data, device)
    pinned = kwargs.pop("pin_memory", False)
    kwargs["device"] = META_DEVICE if label == META and simulation.compute else CPU_DEVICE
    if isinstance(data, torch.Tensor) and labels.label_of(data) >= 0:
        data = data.cpu()
    result = original(simulation.values.read_numbers(data), *args, **kwargs)
    if label >= 0 and not result.untyped_storage().resizable():  # a GPU shares no memory with numpy
        result = result.clone()
    if pinned and label == CPU:
        return labels.mark_pinned(result)
    return _label_result(result, label)


@replaces(torch, *SPARSE)
def _make_sparse(original: Original, *args: Any, **kwargs: Any) -> Any:
    """They convert lists behind the modes' back, so the tensor is moved when it is complete."""
    values = kwargs.get("values", next((arg for arg in reversed(args) if isinstance(arg, torch.Tensor)), None))
    device = kwargs.pop("device", None)
    if isinstance(values, torch.Tensor):
        if device is None:
            _check_parts(original.__name__, kwargs.get("indices", args[0] if args else None), values)
            device = labels.device_of(values)
        args, kwargs = _make_indices(original.__name__, args, kwargs)
    if device is None:
        return original(*args, **kwargs)
    device = tensors.as_device(device)
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (args, kwargs))
    return original(*args, **kwargs).to(device)


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
    lists = {key: value for key, value in kwargs.items() if isinstance(value, list)}
    named = {key: torch.tensor(value) for key, value in lists.items() if key.endswith("indices")}
    return (*indices, *args[count:]), kwargs | named


@replaces(torch.nested, "nested_tensor")
def _place_with_first(original: Original, tensor_list: Any, *, device: Any = None, **kwargs: Any) -> Any:
    """It goes where the first of its tensors is, and reads that in C++."""
    first = next(iter(tensor_list), None)
    if device is None and isinstance(first, torch.Tensor):
        device = labels.device_of(first)
    return original(tensor_list, device=tensors.as_device(device), **kwargs)


def _label_for(data: Any, device: Any) -> int:
    if device is not None:
        return tensors.label_of_device(device)
    if isinstance(data, torch.Tensor):
        return max(labels.label_of(data), CPU)
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    if isinstance(data, torch.Tensor) and data.dim() > 0:
        return max(labels.label_of(data), CPU)
    return CPU


def _as_tensor(data: torch.Tensor, device: Any, args: Any, kwargs: Any) -> torch.Tensor:
    dtype = kwargs.get("dtype") or (args[0] if args else None) or data.dtype
    result: torch.Tensor = data.to(tensors.as_device(device), dtype, copy=bool(kwargs.get("copy")))
    requires_grad = kwargs.get("requires_grad")
    if requires_grad is None:
        return result
    return result.detach().requires_grad_(requires_grad)


def _label_result(tensor: torch.Tensor, label: int) -> torch.Tensor:
    tensor = simulation.values.strip_values(tensor)
    if label >= 0 or (label == META and not simulation.compute):
        labels.put_label(tensor, label)
    return tensor


_refuse_memory = refusing(
    Message("virtual GPUs share no memory with other libraries"),
    why=Message("the library would get CPU memory"),
    instead="x.cpu()",
)


@replaces(_Tensor, "__dlpack__")
@replaces(torch, "to_dlpack")
@replaces(torch.utils.dlpack, "to_dlpack")
def _to_dlpack(original: Original, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if labels.label_of(tensor) >= 0:
        return _refuse_memory()
    return original(tensor, *args, **kwargs)


@replaces(torch, "from_dlpack")
@replaces(torch.utils.dlpack, "from_dlpack")
def _from_dlpack(original: Original, ext_tensor: Any, **kwargs: Any) -> Any:
    if isinstance(ext_tensor, torch.Tensor):  # taken by its real device
        return ext_tensor.detach()
    return original(ext_tensor, **kwargs)


@overrides(_Tensor, "new_tensor")
def _new_tensor(original: Original, self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    label = _label_for(self, kwargs.pop("device", None))
    if isinstance(data, torch.Tensor) and labels.label_of(data) >= 0:
        data = data.cpu()
    values = simulation.values
    return _label_result(original(values.read_values(self), values.read_numbers(data), **kwargs), label)


LEGACY_NAMES = "Float Double Half BFloat16 Byte Char Short Int Long Bool".split()


class _LegacyType(type):
    real: Any
    replaced: Any
    is_cuda: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not simulation.is_running:
            return cls.replaced(*args, **kwargs)
        usual = machine.current_index() if cls.is_cuda else CPU
        if args and isinstance(args[0], torch.Tensor) and (labels.label_of(args[0]) >= 0) != cls.is_cuda:
            raise TypeError(f"expected a tensor on {labels.name_of(usual)} (got one on {labels.device_of(args[0])})")
        label = _pop_label(kwargs, usual)
        return _label_as_intended(cls.real(*args, **kwargs), label)

    def __instancecheck__(cls, instance: object) -> bool:
        if not simulation.is_running:
            return isinstance(instance, cls.replaced)
        if not isinstance(instance, torch.Tensor) or instance.dtype != cls.real.dtype:
            return False
        return (labels.label_of(instance) >= 0) == cls.is_cuda


def _pop_label(kwargs: dict[str, Any], usual: int) -> int:
    """The label of the device that is named, which leaves the keywords. Source: `legacy_tensor_generic_ctor_new`."""
    device = kwargs.pop("device", None)
    if device is None:
        return usual
    label = tensors.label_of_device(device)
    if (label >= 0) != (usual >= 0):
        kinds = ["cuda" if each >= 0 else "cpu" for each in (usual, label)]
        raise RuntimeError("legacy constructor expects device type: {} but device type: {} was passed".format(*kinds))
    return label


def _label_as_intended(tensor: torch.Tensor, label: int) -> torch.Tensor:
    """Label what the user constructed: a constructor looks like torch's own C++ code to the mode."""
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
                names = {"real": real, "replaced": getattr(owner, full), "is_cuda": on_gpu, "dtype": real.dtype}
                patches.set(owner, full, _LegacyType(full, (), names | {"__module__": module, "__doc__": real.__doc__}))
    patches.set(_Tensor, "__new__", staticmethod(_construct))
    before, dtype = default_device(), torch.get_default_dtype()
    patches.undo.add_step(_put_defaults_back, before, dtype)


def _construct(cls: type[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    if cls is not _Tensor:
        # What an operator returns through a mode is an object of Python already, and torch cannot make it another class.
        with hide_from_modes():
            return TensorBase.__new__(cls, *args, **kwargs)
    tensor: torch.Tensor = TensorBase.__new__(cls, *args, **kwargs)
    if not args:  # nothing is allocated that looks like a temporary
        return tensor
    return _label_as_intended(tensor, CPU)


@overrides(_Tensor, "new")
def _new(original: Original, self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    label = _pop_label(kwargs, max(labels.label_of(self), CPU))
    return _label_as_intended(original(self, *args, **kwargs), label)


@replaces(torch, "set_default_tensor_type")
def _set_default_tensor_type(original: Original, t: Any) -> None:
    owner, _, kind = tensors.name_of_type(t).rpartition(".")
    original(getattr(torch, kind).real)
    set_default_device("cuda" if owner == "torch.cuda" else None)


def _put_defaults_back(device: torch.device, dtype: torch.dtype) -> None:
    """A default GPU would outlive the simulation."""
    if default_device().type == "cuda":
        set_default_device(None if device.type == "cpu" else device)
        torch.set_default_dtype(dtype)


DEVICE_AT = 7
"""Place of `device` among the arguments. Source: `THPVariable_make_wrapper_subclass` in `python_variable.cpp`."""


@replaces(_Tensor, "_make_wrapper_subclass")
def _make_wrapper(original: Original, *args: Any, **kwargs: Any) -> Any:
    """A wrapper of tensors of its own: it shows the device that it names, and takes no memory."""
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


@replaces(_Tensor, "_make_subclass")
def _make_subclass(original: Original, *args: Any, **kwargs: Any) -> Any:
    """Fake tensors choose the kernels of a device by `device_for_backend_keys`."""
    device = kwargs.get("device_for_backend_keys")
    if device is not None:
        kwargs["device_for_backend_keys"] = _hide_gpu(torch.device(device))
    return original(*args, **kwargs)


_DEVICE = torch.ops.prim.device.default


def install_fake_devices(patches: Patches) -> None:
    """Answer what C++ asks of fake tensors."""
    fake: Any = FakeTensor
    dispatch = vars(fake)["__torch_dispatch__"].__func__
    patches.set(fake, "__torch_dispatch__", classmethod(functools.wraps(dispatch)(_hide_from_cpp(dispatch))))
    handlers: Any = fake_answers
    original = handlers[_DEVICE]
    patches.set(*locate_name("fake_answers"), handlers | {_DEVICE: lambda args: _hide_gpu(original(args))})
    if not simulation.compute:
        # Theirs are on meta, which torch's own code for them asks for: not of tensors of a program, which are all on meta here.
        patches.set(fake, "__new__", staticmethod(labels.seeing_real_devices()(fake.__new__)))
        patches.wrap(FakeTensorMode, "__torch_dispatch__", labels.seeing_real_devices())
    # It would make a tensor on a GPU, which takes memory.
    patches.set(*locate_name("init_gpu_context"), lambda device: None)


def _hide_from_cpp(original: Original) -> Original:
    def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = original(cls, func, types, args, kwargs or {})
        return _hide_gpu(result) if func is _DEVICE else result

    return dispatch


def _hide_gpu(device: torch.device) -> torch.device:
    return CPU_DEVICE if device.type == "cuda" else device
