"""Steps as they are without us: outputs, gradients and random states plain, recorded and on virtual GPUs, bit by bit and with
their strides.

A step ends with gradients of many layouts, because kernels choose their way by strides, those of dimensions of size one too;
and each reaches its tensor alone, and as the first of two that the engine adds.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import itertools
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
import torch
from torch.utils._pytree import tree_leaves, tree_map

import devwidget
from tests.gpus.judges import verdicts

M_PERTURB = -6
"""The option of glibc's `mallopt` by which new memory is filled. Source: `malloc.h`."""


@contextlib.contextmanager
def other_garbage() -> Iterator[None]:
    """New memory holds other bytes than before: a kernel that reads what nobody wrote does not repeat itself."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library than glibc
        yield
        return
    mallopt(M_PERTURB, 77)
    try:
        yield
    finally:
        mallopt(M_PERTURB, 0)


WAYS: dict[str, Callable[[], Any]] = {
    "plain": contextlib.nullcontext,
    "again": other_garbage,
    "recorded": devwidget.record,
    "simulated": lambda: devwidget.simulate(2),
}
"""What a step runs in. `again` tells which steps do not even repeat themselves."""
KINDS = "output", "gradient", "random state"
Tensors = list[torch.Tensor | None]


class Case(NamedTuple):
    """One step.

    Attributes:
        call: a function, a module, or the name of an operator of torch's op_db.
        layout: of the gradients that come in.
        is_met: whether they meet others.
    """

    name: str
    call: Any
    args: Any
    kwargs: Any
    layout: str
    is_met: bool


class Count(NamedTuple):
    """What came of many steps.

    Attributes:
        counts: how many are `same` each way, `differ`, or were refused.
        differences: which step, which way, what.
    """

    counts: Counter[str]
    differences: dict[str, str]


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    back = tuple(reversed(range(tensor.dim())))
    return tensor.permute(back).contiguous().permute(back)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack((tensor, tensor), -1)[..., 0]


def _ones_moved(tensor: torch.Tensor) -> torch.Tensor:
    """Dimensions of size one get another stride, which means nothing."""
    tensor = tensor.contiguous()
    strides = [1 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(tensor.shape, strides)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats.get(tensor.dim(), torch.contiguous_format))


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda tensor: tensor.contiguous(),
    "expanded": lambda tensor: tensor.flatten()[:1].sum().expand(tensor.shape),
    "transposed": lambda tensor: tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor,
    "reversed": _reversed,
    "sliced": _sliced,
    "ones moved": _ones_moved,
    "channels last": _channels_last,
}


def tensors(tree: Any) -> list[torch.Tensor]:
    leaves = tree_leaves(dict(tree) if hasattr(tree, "keys") else tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def narrowed(given: Any, dim: int) -> Any:
    """What is given, with size one in this dimension of the first tensor, and in those of the others that are as large."""
    sizes = [size for tensor in tensors(given) if (size := _size(tensor, dim))]
    if not sizes or sizes[0] < 2:
        return None

    def narrow(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or _size(value, dim) != sizes[0]:
            return value
        return value.detach().narrow(dim, 0, 1).clone().requires_grad_(value.requires_grad)

    return tree_map(narrow, given)


def _size(tensor: torch.Tensor, dim: int) -> int:
    has_it = tensor.layout == torch.strided and -tensor.dim() <= dim < tensor.dim()
    return tensor.shape[dim] if has_it else 0


UNCHECKED = {"nn.functional.ctc_loss", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}
"""Operators that trust one argument to fit another: CTC's targets are places among the classes, and `F.batch_norm` compares the
channels of its arguments before it calls these. With fewer they write beyond their memory, in plain torch."""


def _is_unchecked(call: Any) -> bool:
    return isinstance(call, torch.nn.CTCLoss) or (isinstance(call, str) and call in UNCHECKED)


def cases(name: str, call: Any, args: Any, kwargs: Any, layouts: Iterable[str] = LAYOUTS) -> Iterator[Case]:
    """The step with gradients of each layout, as it is and with one batch, one channel or token, and one of the last."""
    dims = () if _is_unchecked(call) else (0, 1, -1)
    narrow = {f" one at {dim}": narrowed((args, kwargs), dim) for dim in dims}
    for text, given in {"": (args, kwargs), **narrow}.items():
        if given is not None:
            for layout, is_met in itertools.product(layouts, (False, True)):
                yield Case(f"{name}{text}, {layout}{', met' * is_met}", call, *given, layout, is_met)


def of_programs(programs: Mapping[str, Any], shape: tuple[int, ...]) -> Iterator[Case]:
    """Steps of functions of one tensor."""
    for (name, run), layout, is_met in itertools.product(programs.items(), LAYOUTS, (False, True)):
        images = torch.randn(shape, requires_grad=True)
        yield Case(f"{name} {shape}, {layout}{', met' * is_met}", run, (images,), {}, layout, is_met)


def of_operators(
    names: Iterable[str], dtype: torch.dtype, samples: int, layouts: Iterable[str] = LAYOUTS
) -> Iterator[list[Case]]:
    """Steps of operators of torch's op_db, a list for each."""
    for name in names:
        op = verdicts.OPERATORS[name]
        if dtype not in op.supported_backward_dtypes("cpu") or verdicts.UNINITIALIZED.search(op.name):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), samples))
        steps = [
            cases(f"{name}[{place}]", name, (one.input, *one.args), one.kwargs, layouts) for place, one in enumerate(given)
        ]
        yield list(itertools.chain(*steps))


def of_modules(
    population: Iterable[tuple[str, torch.nn.Module, Any, Any]], dtype: torch.dtype, layouts: Iterable[str] = LAYOUTS
) -> Iterator[list[Case]]:
    """Steps of modules with what they are given, a list for each."""

    def cast(value: Any) -> Any:
        is_floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.detach().to(dtype).requires_grad_() if is_floating else value

    for name, module, args, kwargs in population:
        yield list(cases(name, module.to(dtype), *tree_map(cast, (args, kwargs)), layouts))


def _there(value: Any) -> Any:
    """A leaf of its own on the virtual GPU: all of the memory that it is a view of, and its strides."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_conj() or value.is_neg():
        return value.detach().to("cuda:0").requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
    items = value.untyped_storage().nbytes() // value.element_size()
    memory = value.detach().as_strided((items,), (1,), 0).to("cuda:0")
    there = memory.as_strided(value.size(), value.stride(), value.storage_offset())
    return there.requires_grad_(value.requires_grad)


def _copied(value: Any) -> Any:
    """A leaf of its own, with the memory and the strides that it has."""
    return copy.deepcopy(value.detach()).requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _seed() -> None:
    # `torch.manual_seed` formats a stack for each accelerator that was not begun, which took half of the time of a step.
    torch.default_generator.manual_seed(1)
    numpy.random.seed(1)
    random.seed(1)


def _step(case: Case, is_virtual: bool) -> tuple[Tensors, Tensors, Tensors]:
    """Outputs, gradients and the random state after them."""
    args, kwargs = tree_map(_there if is_virtual else _copied, (case.args, case.kwargs))
    call = verdicts.as_found(case.call) if isinstance(case.call, str) else case.call
    parameters = []
    if isinstance(call, torch.nn.Module):
        call = copy.deepcopy(call).to("cuda:0" if is_virtual else "cpu")
        parameters = list(call.parameters())
    _seed()
    outputs = tensors(call(*args, **kwargs))
    roots = [each for each in outputs if each.requires_grad and each.layout == torch.strided]
    backward(roots, LAYOUTS[case.layout], case.is_met)
    leaves = [leaf for leaf in tensors((args, kwargs)) if leaf.requires_grad] + parameters
    return [each.detach() for each in outputs], [leaf.grad for leaf in leaves], [torch.default_generator.get_state()]


def backward(roots: list[torch.Tensor], layout: Callable[[torch.Tensor], torch.Tensor], is_met: bool) -> None:
    """Backward from gradients of this layout, which meet others on their way if asked for."""
    torch.default_generator.manual_seed(2)
    gradients = [layout(torch.randn(each.shape).to(each.device, each.dtype)) for each in roots]
    if is_met:
        roots = [root * factor for root in roots for factor in (2, 3)]
        gradients = [each for gradient in gradients for each in (gradient, gradient.contiguous())]
    if roots:
        torch.autograd.backward(roots, gradients)


def difference(found: Tensors, wanted: Tensors) -> str:
    """What tells two lists of tensors apart; nothing if every bit and every stride is the same, NaN being NaN."""
    if len(found) != len(wanted):
        return f"{len(found)} tensors for {len(wanted)}"
    pairs = enumerate(zip(found, wanted, strict=True))
    return next((f"{place}: {text}" for place, pair in pairs if (text := _one_difference(*pair))), "")


def _one_difference(found: torch.Tensor | None, wanted: torch.Tensor | None) -> str:
    if found is None or wanted is None:
        return "" if found is wanted else "missing" if found is None else "unexpected"
    if found.layout != wanted.layout or found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} {tuple(found.shape)} for {wanted.dtype} {tuple(wanted.shape)}"
    if found.layout != torch.strided:
        return difference([found.to_dense()], [wanted.to_dense()])
    if found.stride() != wanted.stride():
        return f"strides {found.stride()} for {wanted.stride()} of {tuple(found.shape)}"
    found, wanted = _parts(found), _parts(wanted)
    if torch.equal(found.isnan(), wanted.isnan()) and torch.equal(*(_bits(each) for each in (found, wanted))):
        return ""
    return f"off by {(found.double() - wanted.double()).abs().max().item():.3g}"


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Real numbers, on a CPU that has kernels for them."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(tensor.to(torch.promote_types(tensor.dtype, torch.complex64))) if tensor.is_complex() else tensor


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """All that tells numbers apart, the sign of a zero too; NaN is NaN."""
    if not tensor.is_floating_point():
        return tensor
    tensor = tensor.nan_to_num(7.0, torch.inf, -torch.inf)
    return torch.stack((tensor.double(), tensor.signbit().double()))


def _run_all(way: str, given: list[Case]) -> list[Any]:
    """What each step gives, or its exception."""
    found: list[Any] = []
    with warnings.catch_warnings(), WAYS[way]():
        warnings.simplefilter("ignore")
        for case in given:
            try:
                found.append(_step(case, way == "simulated"))
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}".split("\n")[0])
    return found


def compare(given: list[Case], ways: Sequence[str] = ("recorded", "simulated")) -> Count:
    """Run steps plain, once more, and in these ways."""
    plain, again, *watched = (_run_all(way, given) for way in ("plain", "again", *ways))
    counts: Counter[str] = Counter()
    differences = {}
    for place, case in enumerate(given):
        if isinstance(plain[place], str):
            counts["not possible"] += 1
            continue
        if isinstance(again[place], str) or any(map(difference, again[place], plain[place])):
            counts["not repeatable"] += 1
            continue
        for way, results in zip(ways, watched, strict=True):
            text = _told(way, results[place], plain[place])
            counts[f"{way}: {'refused' if text is None else 'differ' if text else 'same'}"] += 1
            if text:
                differences[f"{case.name}, {way}"] = text
    return Count(counts, differences)


def _told(way: str, found: Any, wanted: Any) -> str | None:
    """What differs; None if a GPU does not do that."""
    if isinstance(found, str):
        return None if way == "simulated" else found
    texts = map(difference, found, wanted)
    return next((f"{kind} {text}" for kind, text in zip(KINDS, texts, strict=True) if text), "")
