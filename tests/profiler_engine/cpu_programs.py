"""Programs for GPUs, run on a CPU: cases without a bug, and programs in the shape of what people run."""

from __future__ import annotations

import contextlib
import functools
import io
import pathlib
import random
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy
import torch

from tests.corpus import score
from tests.gradients import tensors
from tests.mainstream.test_mainstream import PROGRAMS, is_below, written
from tests.profiler_engine.agreement import Prepared

CORPUS = pathlib.Path(score.__file__).parent
CASES = [*sorted(CORPUS.glob("case_clean_*.py")), *sorted((CORPUS / "more").glob("case_clean_*.py"))]
Program = tuple[str, Callable[[], Prepared]]
_ON_CPU = (
    (r"cuda:\d", "cpu"),
    (r"f'cuda:\{[^}]*\}'", "'cpu'"),
    (r'f"cuda:\{[^}]*\}"', '"cpu"'),
    (r"(['\"])cuda\1", r"\1cpu\1"),
    (r"\.cuda\([^)'\"\n]*\)", ".cpu()"),
    (r"\.cuda\b(?=\s|$)", ".cpu"),
    (r"torch\.cuda\.set_device\(.*\)", "pass"),
)


def on_cpu(source: str) -> str:
    """A program with each GPU replaced by the CPU."""
    for pattern, text in _ON_CPU:
        source = re.sub(pattern, text, source)
    return source


def iterate_cases(folder: pathlib.Path, paths: list[pathlib.Path]) -> Iterator[Program]:
    """The steps of cases, each of which is built anew for each run."""
    for path in paths:
        copy = folder / path.name
        copy.write_text(on_cpu(path.read_text(encoding="utf-8")), encoding="utf-8")
        if "RUNS_ON_CPU = False" not in copy.read_text(encoding="utf-8"):
            yield path.stem, functools.partial(_prepare_case, copy)


def _prepare_case(path: pathlib.Path) -> Prepared:
    seed()
    parts = score.load(path).build()
    return lambda: score.run_step(parts), parts["model"]


def iterate_mainstream(folder: pathlib.Path, names: set[str] | None = None) -> Iterator[Program]:
    """Whole programs: models are built, trained and saved in them."""
    for program in PROGRAMS:
        if names is None or program.stem in names:
            path = written(folder / program.stem, program)
            for file in path.parent.glob("*.py"):
                file.write_text(on_cpu(file.read_text(encoding="utf-8")), encoding="utf-8")
            yield program.stem, lambda path=path: (functools.partial(_run_program, path), None)


_modules: list[Any] = []
"""Of programs that ended: torch's profiler points into the names of their code until the recording has ended."""


def _run_program(path: pathlib.Path) -> None:
    seed()
    before, silent = set(sys.modules), io.StringIO()
    with (
        mock.patch("sys.argv", [str(path)]),
        mock.patch("sys.path", [str(path.parent), *sys.path]),
        mock.patch.dict("os.environ"),
        mock.patch.object(sys, "excepthook", sys.excepthook),
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
    ):
        _modules.append(runpy.run_path(str(path), run_name="__main__"))
    for name in set(sys.modules) - before:
        if is_below(getattr(sys.modules[name], "__file__", None), path.parent):
            _modules.append(sys.modules.pop(name))


def seed() -> None:
    """Have a program run as before."""
    for each in (torch.manual_seed, numpy.random.seed, random.seed):
        each(0)


def iterate_steps(models: Iterator[tuple[str, Any, Any, Any]]) -> Iterator[Program]:
    """Forward and backward of modules; those that cannot be run twice are left out."""
    for name, model, args, kwargs in models:

        def step(model: Any = model, args: Any = args, kwargs: Any = kwargs) -> None:
            seed()
            roots = [each for each in tensors(model(*args, **kwargs)) if each.requires_grad]
            if roots:
                sum((each.abs() if each.is_complex() else each).float().sum() for each in roots).backward()

        step()  # what is made once is made, as are the gradients
        yield name, lambda step=step, model=model: (step, model)
