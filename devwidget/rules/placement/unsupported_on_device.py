"""unsupported-on-device: the operator has no kernel for this device, or none for this dtype on it.

Why: kernels are implemented separately for each device and dtype.
Bad: `torch.histogram(cuda_tensor)`.
Good: `torch.histc(cuda_tensor)`.
Source: dispatch keys in PyTorch's native_functions.yaml, 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devwidget.records.fault_details import NoKernel
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import arguments_in, names_in, parsed_expression, uses_of
from devwidget.records.trace import Fault, Trace
from devwidget.rules.call_edits import LOW
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.moves_where_used import cast_where_used
from devwidget.rules.edits.source_file import Code, code_at
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import first_stray

_ALTERNATIVES = {
    "histogram": Message("use torch.bucketize and torch.bincount, which have GPU kernels"),
    "histogramdd": Message("use torch.bucketize and torch.bincount, which have GPU kernels"),
}
_CASTS = frozenset({"half", "bfloat16"})
_LOW_DTYPES = frozenset({"torch.float16", "torch.half", "torch.bfloat16"})
_COMPLEX = re.compile(r"(fft_)?(i|r|ih)?fft(2|n)?|stft|complex|polar|view_as_complex")
"""Functions whose results are complex."""
_TO_NUMPY = "numpy", "__array__"


@rule(
    "unsupported-on-device",
    "error",
    needs=("operations",),
    why=Message("each device and dtype needs its own kernel, and not every op has one for all of them"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each call without a kernel."""
    for fault in trace.faults:
        if fault.what == "kernel":
            yield _make_finding(fault)


def _make_finding(fault: Fault) -> Found:
    detail = fault.detail if isinstance(fault.detail, NoKernel) else NoKernel("")
    stray = first_stray(fault)
    return Found(
        fault,
        _headline(fault, detail),
        why=_why(fault, detail),
        birth=stray.birth if stray is not None and stray.dtype == detail.dtype else None,
        fixes=_list_fixes(fault, detail),
    )


def _headline(fault: Fault, detail: NoKernel) -> Message:
    if detail.sizes:
        facts = {"call": fault.call, "sizes": " x ".join(map(str, detail.sizes)), "dtype": detail.dtype}
        return Message("`{call}` got a signal of size {sizes} in {dtype}", **facts)
    if fault.call in _TO_NUMPY:
        return Message("NumPy has no {dtype}", dtype=detail.dtype)
    place = str(fault.target)
    if detail.dtype:
        place = Message("{dtype} on {target}", dtype=detail.dtype, target=fault.target)
    return Message("`{call}` has no kernel for {place}", call=fault.call, place=place)


def _why(fault: Fault, detail: NoKernel) -> str:
    if detail.sizes:
        return Message("cuFFT computes in half precision only if each size is a power of two")
    if detail.dtype == "bfloat16" and _COMPLEX.fullmatch(fault.call):
        return Message("complex numbers have parts of float16, float32 or float64; PyTorch has none of bfloat16")
    return ""


def _list_fixes(fault: Fault, detail: NoKernel) -> Iterator[Fix | None]:
    dtype = detail.dtype
    stray = first_stray(fault)
    subject = (stray.source or stray.expression if stray is not None else "") or "x"
    has_other_result = _COMPLEX.fullmatch(fault.call) or fault.call in _TO_NUMPY
    if dtype and (dtype not in LOW or has_other_result):  # casting back would lose what was computed
        if dtype in LOW or not dtype.startswith(("float", "complex")):
            yield _without_cast(fault, Message("leave it in the dtype that it had"))
            words = Message("compute in float32")
            strays = [operand for operand in fault.operands if operand.stray]
            if fault.call in ("complex", "polar"):
                yield mended(fault.site, words, _widen_parts, fault)
            yield cast_where_used(fault, strays, ".float()", words, is_inline=True)
        return
    if dtype:
        yield mended(fault.site, Message("compute in float32"), _wrap_call, fault, subject, ".float()", "dtype")
    if str(fault.target) == "cpu":
        return
    words = Message("run it on the CPU, and move the result back")
    yield mended(fault.site, words, _wrap_call, fault, subject, ".cpu()", "device")
    yield Fix(words, f"{subject}.cpu()")
    if fault.call in _ALTERNATIVES:
        yield Fix(_ALTERNATIVES[fault.call], confidence="choice")


def _widen_parts(draft: Draft, statement: ast.stmt, fault: Fault) -> None:
    """`torch.complex(a, b)`, whose parts have one dtype, becomes `torch.complex(a.float(), b.float())`."""
    for call in draft.code.calls(statement, fault.expression):
        for argument in arguments_in(call):
            draft.append(argument, ".float()")


def _wrap_call(draft: Draft, statement: ast.stmt, fault: Fault, subject: str, move: str, back: str) -> None:
    """`torch.linalg.inv(x)` becomes `torch.linalg.inv(x.float()).to(x.dtype)`, `histogram(x).hist` likewise."""
    home = subject
    if isinstance(parsed_expression(subject), ast.BinOp | ast.UnaryOp):
        home = f"({subject})"
    for call in draft.code.calls(statement, fault.expression):
        _move_arguments(draft, call, subject, move)
        has_parts = isinstance(fault.detail, NoKernel) and fault.detail.has_parts
        _move_result(draft, statement, call, f".to({home}.{back})", has_parts=has_parts)


def _move_arguments(draft: Draft, call: ast.Call, subject: str, move: str) -> None:
    for node in ast.walk(call):
        if node is call or not isinstance(node, ast.expr) or ast.unparse(node) != subject:
            continue
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            draft.append(node, move)


def _move_result(draft: Draft, statement: ast.stmt, call: ast.Call, move: str, *, has_parts: bool) -> None:
    result = _result_of(draft.code, call)
    if result is call and has_parts:
        return
    if not isinstance(draft.code.parents.get(result), ast.Attribute | ast.Assign) or _one_result(statement, result):
        draft.append(result, move)


def _result_of(code: Code, call: ast.Call) -> ast.expr:
    """`histogram(x).hist` for `histogram(x)`; the call itself if only a method of its result is called."""
    field = code.parents.get(call)
    if not isinstance(field, ast.Attribute):
        return call
    outer = code.parents.get(field)
    if isinstance(outer, ast.Call) and outer.func is field:
        return call
    return field


def _one_result(statement: ast.stmt, result: ast.AST) -> bool:
    """Whether the statement assigns one result, unlike `values, vectors = f(x)`."""
    return isinstance(statement, ast.Assign) and statement.value is result and isinstance(statement.targets[0], ast.Name)


def _without_cast(fault: Fault, summary: str) -> Fix | None:
    """Drop the cast to low precision of a variable that only the failing line reads: `angles = table.to(dtype)`."""
    births = {operand.birth for operand in fault.operands if operand.stray}
    at, use = code_at(next(iter(births), None)), code_at(fault.site)
    if len(births) != 1 or at is None or use is None:
        return None
    code, statement = at
    scope = code.scope(statement)
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as cast) if _is_cast(cast):
            readers = _list_readers(code, scope, name) - {statement}
            is_of_function = code.scope(use[1]) is scope and not isinstance(scope, ast.Module)
            if is_of_function and readers == {use[1]} and _is_read_alone(fault, name):
                draft = Draft(code)
                draft.drop_method(cast)
                return fix(summary, draft)
    return None


def _list_readers(code: Code, scope: ast.AST, name: str) -> set[ast.stmt | None]:
    """Return the statements that read a variable."""
    return {code.statement_of(node) for node in uses_of(scope, name) if isinstance(node.ctx, ast.Load)}


def _is_read_alone(fault: Fault, name: str) -> bool:
    """Whether the operands are computed of one variable: another one may have been cast to go with it."""
    sources = [operand.source for operand in fault.operands if operand.stray]
    read = set[str]().union(*map(names_in, map(parsed_expression, sources)))
    return read <= {name, "torch"}


def _is_cast(call: ast.Call) -> bool:
    """Whether a call casts to low precision, or to a dtype in a variable, and does nothing else."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]):
            return name in _CASTS
        case ast.Call(func=ast.Attribute(attr="to" | "type"), args=[dtype], keywords=[]):
            text = ast.unparse(dtype)
        case ast.Call(func=ast.Attribute(attr="to"), args=[], keywords=[ast.keyword(arg="dtype", value=dtype)]):
            text = ast.unparse(dtype)
        case _:
            return False
    return text in _LOW_DTYPES or text.rpartition(".")[2].endswith("dtype")
