"""Short programs that ask something of a GPU, one a line in the texts beside, and what comes of each."""

from __future__ import annotations

import ast
import copy
import functools
import io
import json
import math
import pathlib
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional

HERE = pathlib.Path(__file__).parent
GPU = "cuda"
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_SIZES = re.compile(r"[\d.]+ (?:[KMGT]iB|bytes)")


def read_answers() -> dict[str, dict[str, Any]]:
    """What came of them on an H100 with torch 2.11."""
    lines = (HERE / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    return {call: answer for line in lines for call, answer in json.loads(line).items()}


def read_calls(text: str) -> list[str]:
    """The programs of one text."""
    lines = (HERE / f"{text}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def answer_surface() -> dict[str, Any]:
    """What comes of each."""
    return {call: answer(call) for call in read_calls("surface")}


def answer_further() -> dict[str, Any]:
    """What comes of each of another text."""
    return {call: answer(call) for call in read_calls("further")}


def answer_both() -> dict[str, Any]:
    """What comes of each of both texts, as `read_answers` has it."""
    return answer_surface() | answer_further()


def answer(call: str) -> dict[str, Any]:
    """The value of a program, which is its last expression or `y`, or its error."""
    make: Callable[..., Any] = functools.partial(torch.ones, device=GPU)
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": functional, "np": np, "math": math, "io": io, "copy": copy}
    names |= {"pickle": pickle, "gpu": GPU, "o": make, "r": functools.partial(torch.randn, device=GPU)}
    names["z"] = lambda *shape: torch.zeros(*shape, dtype=torch.long, device=GPU)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = _run(call, names)
            value = _describe(value)
        except Exception as error:  # whatever it raises is the answer
            return {"raises": type(error).__name__, "text": _without_sizes(str(error).split("\n")[0])}
    return {"gives": value}


def _run(call: str, names: dict[str, Any]) -> Any:
    body = ast.parse(call).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), call, "exec"), names)
    if last is None:
        return names.get("y")
    return eval(compile(ast.Expression(last.value), call, "eval"), names)


def _describe(value: Any) -> str:
    """A tensor by its kind: which numbers are random, or sums in another order, is no question here."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} on {value.device}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_describe, value))}]"
    return _without_sizes(repr(value))[:200]


def _without_sizes(text: str) -> str:
    """Addresses and bytes differ from card to card."""
    return _SIZES.sub("…", _ADDRESS.sub("0x…", text))[:300]
