"""What a virtual GPU does with one operator of torch's op_db and one dtype, held against what op_db says of CUDA."""

from __future__ import annotations

import itertools
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.testing._internal import common_cuda
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.utils._pytree import tree_leaves, tree_map

import devwidget

AMPERE = 80
"""The virtual GPUs are such ones: torch's lists ask how new a GPU is, once, when they are imported."""
for _name, _value in list(vars(common_cuda).items()):
    if _model := re.fullmatch(r"SM(\d+)OrLater", _name):
        setattr(common_cuda, _name, int(_model[1]) <= AMPERE)

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo.core import DecorateInfo, _getattr_qual  # noqa: E402

OPERATORS = {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}
BY_NAME = {key for key, op in OPERATORS.items() if op.op is _getattr_qual(torch, op.name, None)}
"""Operators that are functions of torch: a program finds them by their names, and what the simulation put there."""
DTYPES = all_types_and_complex_and(torch.half, torch.bfloat16, torch.bool, torch.complex32)
HOME = "cuda:1"
UNINITIALIZED = re.compile(r"empty|resize")
PACKAGE = Path(devwidget.__file__).parent
SAMPLES = 8
"""As many of an operator's samples: the later ones differ in shapes alone."""


class Verdict(NamedTuple):
    """What came of one operator: `question` is forward, backward, refusal or error."""

    operator: str
    dtype: str
    question: str
    agrees: bool
    text: str = ""


def judge(name: str, short: str, samples: int = SAMPLES) -> Iterator[Verdict]:
    """Hold one operator with one dtype, or with what raises `errors`; the simulation runs already."""
    if short == "errors":
        yield from judge_errors(name)
        return
    op, dtype = as_found(name), getattr(torch, short)
    if dtype not in op.supported_dtypes("cuda"):
        if not is_excused(op, "test_dtypes", dtype):
            yield Verdict(name, short, "refusal", *_refused(op, dtype))
        return
    questions = ["forward"] + ["backward"] * (dtype in op.supported_backward_dtypes("cuda"))
    for question in questions:
        text = _fault(op, dtype, samples, question == "backward")
        yield Verdict(name, short, question, not text, text)


def as_found(name: str) -> Any:
    """An operator of the list, with what a program finds under its name now."""
    op = OPERATORS[name]
    if name in BY_NAME:
        op.op = _getattr_qual(torch, op.name)
    return op


def judge_errors(name: str) -> Iterator[Verdict]:
    """Hold the errors that op_db lists for CUDA; torch's own test of them gives the names its GPU."""
    op = as_found(name)
    if op.error_inputs_func is None or is_excused(op, "test_errors", None):
        return
    for place, each in enumerate(op.error_inputs(HOME)):
        sample = each.sample_input
        if not isinstance(each.error_type, (type, tuple)):
            continue
        try:
            result = op(sample.input, *sample.args, **sample.kwargs)
        except each.error_type as error:
            agrees, text = bool(re.search(each.error_regex, str(error))), f"{error} / {each.error_regex}"
        except Exception as error:
            agrees, text = False, f"{type(error).__name__}: {error} / {each.error_type}: {each.error_regex}"
        else:
            agrees, text = result is NotImplemented, f"nothing raised / {each.error_regex}"
        yield Verdict(name, str(place), "error", agrees, "" if agrees else text)


def is_excused(op: Any, test: str, dtype: torch.dtype | None) -> bool:
    """Whether torch does not hold CUDA itself against its list: of complex32 it asks only where that is listed."""
    if test == "test_dtypes" and dtype == torch.complex32:
        return True
    infos = [each for each in op.decorators if isinstance(each, DecorateInfo)]
    return any(each.is_active("TestCommon", test, "cuda", dtype, {}) for each in infos if each.test_name == test)


def _samples(op: Any, dtype: torch.dtype, most: int, grad: bool) -> list[Any]:
    return list(itertools.islice(op.sample_inputs(HOME, dtype, requires_grad=grad), most))


def wanting_gradients(op: Any, device: str, dtype: torch.dtype) -> Iterator[Any]:
    """Samples that want gradients wherever there are any: with these torch's own test holds CUDA against its list."""
    yield from op.sample_inputs(device, dtype, requires_grad=dtype.is_floating_point or dtype.is_complex)


def _refused(op: Any, dtype: torch.dtype) -> tuple[bool, str]:
    """Whether a sample is refused, or none can be made; one is enough, as in torch's own test."""
    count = 0
    try:
        for sample in wanting_gradients(op, HOME, dtype):
            op(sample.input, *sample.args, **sample.kwargs)
            count += 1
    except Exception as error:
        return not _is_ours(error), f"{type(error).__name__}: {error}"
    return not count, f"{count} samples are accepted"


def _is_ours(error: Exception) -> bool:
    """Whether the simulator itself failed."""
    *_, innermost = traceback.extract_tb(error.__traceback__)
    return isinstance(error, (AssertionError, AttributeError)) and PACKAGE in Path(innermost.filename).parents


def _fault(op: Any, dtype: torch.dtype, most: int, grad: bool) -> str:
    """What is wrong with the results of an operator that CUDA has; nothing if all is well."""
    try:
        samples = _samples(op, dtype, most, grad)
    except Exception as error:
        return f"no samples: {type(error).__name__}: {error}"
    for place, sample in enumerate(samples):
        there = (sample.input, sample.args, sample.kwargs)
        here = tree_map(on_cpu, there)
        try:
            expected = _run(op, sample, here, grad)
        except Exception:  # only GPUs have a kernel
            expected = None
        try:
            found = _run(op, sample, there, grad)
            fault = _difference(op, _home(sample.kwargs.get("device", HOME)), found, expected)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}".split("\n")[0][:300]
        if fault:
            return f"sample {place}: {fault}" + (" (CPU: works)" if expected is not None else "")
    return ""


def _home(device: Any) -> str:
    """The current GPU is the first."""
    return "cuda:0" if str(device) == "cuda" else str(device)


def on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _copy(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, (str, torch.device)) and str(value).startswith("cuda"):
        return "cpu" if isinstance(value, str) else torch.device("cpu")
    return value


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory that a tensor is a view of, for operators that look there."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return tensor.cpu()
    items = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((items,), (1,), 0).cpu().as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _run(op: Any, sample: Any, given: Any, grad: bool) -> tuple[list[Any], list[Any]]:
    """Results and gradients."""
    torch.manual_seed(0)
    first, args, kwargs = given
    # Some operators write into what they are given: an operator of its own keeps leaves whole.
    result = op(first, *args, **kwargs)
    if not grad:
        return tensors(result), []
    output = sample.output_process_fn_grad(result)
    root = output if isinstance(output, torch.Tensor) else next(iter(tensors(output)))
    leaves = [leaf for leaf in tensors(given) if leaf.requires_grad]
    if not root.requires_grad:
        return tensors(result), []
    gradients = torch.autograd.grad(root, leaves, torch.ones_like(root), allow_unused=True)
    return tensors(result), list(gradients)


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _difference(op: Any, home: str, found: Any, expected: Any) -> str:
    for kind, results in zip(("result", "gradient"), found, strict=True):
        for place, tensor in enumerate(results):
            if tensor is not None and str(tensor.device) != home:
                return f"{kind} {place} is on {tensor.device}"
    if expected is None or UNINITIALIZED.search(op.name):
        return ""
    for kind, results, wanted in zip(("result", "gradient"), found, expected, strict=True):
        for place, (tensor, other) in enumerate(zip(results, wanted, strict=True)):
            if (tensor is None) != (other is None):
                return f"{kind} {place} is {'missing' if tensor is None else 'unexpected'}"
            if tensor is not None and (text := unequal(tensor, other)):
                return f"{kind} {place}: {text}"
    return ""


def unequal(tensor: torch.Tensor, other: torch.Tensor) -> str:
    try:
        torch.testing.assert_close(tensor.detach().cpu(), other.detach(), rtol=0, atol=0, equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")[:200]
    return ""
