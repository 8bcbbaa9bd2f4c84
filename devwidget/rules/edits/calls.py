"""What torch calls make a tensor, and what a statement does with one."""

from __future__ import annotations

import ast

from devwidget.records.syntax import parsed_statement

FACTORIES = frozenset(
    {
        "arange",
        "as_tensor",
        "asarray",
        "bartlett_window",
        "blackman_window",
        "complex",
        "empty",
        "empty_strided",
        "eye",
        "from_file",
        "full",
        "hamming_window",
        "hann_window",
        "kaiser_window",
        "linspace",
        "logspace",
        "new_empty",
        "new_full",
        "new_ones",
        "new_tensor",
        "new_zeros",
        "normal",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "scalar_tensor",
        "sparse_coo_tensor",
        "tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
    }
)
"""Torch functions that decide a device themselves and take it as `device=` (torch.overrides, 2.13)."""

LIKENESSES = frozenset(f"{name}_like" for name in ("empty", "full", "ones", "rand", "randint", "randn", "zeros"))
"""Torch functions that use the device of their argument unless another one is passed."""


def moved_name(statement: str) -> str:
    """`x` of the statement `x.to(device)` or `x.cuda`."""
    only = parsed_statement(statement)
    node = only.value if isinstance(only, ast.Expr) else None
    method = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(method.value) if isinstance(method, ast.Attribute) else ""


_SHAPES = frozenset(
    "clone contiguous detach expand flatten permute reshape squeeze t transpose unflatten unsqueeze view".split()
)
"""Methods of a tensor that copy or shape it, and say nothing of where it lives."""


def hands_on(statement: str) -> bool:
    """True for `self.mask = mask`, `self.mean = mean.view(-1, 1)` and `self.mean, self.std = stats`: made elsewhere."""
    node = parsed_statement(statement)
    value = node.value if isinstance(node, ast.Assign) else None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SHAPES:
        value = value.func.value
    return isinstance(value, ast.Name | ast.Attribute)


def starts_empty(statement: str) -> bool:
    """True for `self.state = None` and `self.cache = {}`: what is there now came later."""
    value = getattr(parsed_statement(statement), "value", None)
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("dict", "list", "OrderedDict") and not value.args
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Constant(value=None):
            return True
    return False
