"""Traces of torch.profiler: moves, waits, operators and modules, of hand-made events of a GPU and of a real file."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import devwidget
from devwidget.extras.profiles.kineto import INFERRED

Event = dict[str, Any]


def span(name: str, ts: float, dur: float, cat: str = "python_function", tid: int = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def operator(name: str, ts: float, external: int, **args: Any) -> Event:
    return span(name, ts, 5, "cpu_op", **{"External id": external, **args})


def on_gpu(name: str, ts: float, external: int, cat: str = "kernel", **args: Any) -> Event:
    return span(name, ts, 2, cat, tid=7, **{"External id": external, "device": 0, **args})


SHAPES = {"Input Dims": [[4, 3], []], "Input type": ["float", "Scalar"]}
STEP = [
    span("train.py(9): main", 0, 1000),
    operator("aten::copy_", 10, 1, **SHAPES),
    on_gpu("Memcpy HtoD (Pageable -> Device)", 12, 1, "gpu_memcpy", bytes=48),
    span("nn.Module: Net_0", 100, 400),
    span("torch/nn/modules/module.py(1782): _call_impl", 101, 398),
    span("net.py(5): forward", 105, 390),
    span("nn.Module: Linear_0", 110, 50),
    span("torch/nn/modules/linear.py(130): forward", 111, 48),
    operator("aten::addmm", 120, 2),
    on_gpu("sgemm", 125, 2),
    operator("aten::copy_", 200, 3),
    on_gpu("Memcpy PtoP (Device -> Device)", 201, 3, "gpu_memcpy", bytes=96, fromDevice=0, inDevice=0, toDevice=1),
    operator("aten::copy_", 210, 4),
    on_gpu("Memcpy PtoP (Device -> Device)", 211, 4, "gpu_memcpy", bytes=96, fromDevice=0, inDevice=0, toDevice=1),
    operator("aten::copy_", 220, 5),
    on_gpu("Memcpy DtoD (Device -> Device)", 221, 5, "gpu_memcpy", bytes=96),
    operator("aten::_local_scalar_dense", 300, 6),
    on_gpu("Memcpy DtoH (Device -> Pageable)", 301, 6, "gpu_memcpy", bytes=4),
    span("autograd::engine::evaluate_function: AddmmBackward0", 600, 50, "cpu_op", tid=2),
    {**operator("aten::mm", 610, 8), "tid": 2},
    on_gpu("sgemm", 611, 8),
    span("Optimizer.step#Adam.step", 700, 50, "user_annotation"),
    operator("aten::_foreach_add_", 710, 9),
    on_gpu("multi_tensor_apply", 711, 9),
]


def opened(folder: pathlib.Path, content: Any, name: str = "trace.json") -> Any:
    written = json.dumps(content).encode()
    path = folder / name
    path.write_bytes(gzip.compress(written) if name.endswith(".gz") else written)
    return devwidget.open(path)


def test_copies_are_moves_with_their_lines(tmp_path: pathlib.Path) -> None:
    trace = opened(tmp_path, {"schemaVersion": 1, "traceEvents": STEP}, "trace.json.gz")
    told = [(str(move.source), str(move.target), move.bytes, move.count, move.module, str(move.site)) for move in trace.moves]
    assert told == [
        ("cpu", "cuda:0", 48, 1, None, "train.py:9"),
        ("cuda:0", "cuda:1", 96, 2, "", "net.py:5"),
        ("cuda:0", "cpu", 4, 1, "", "net.py:5"),
    ]
    assert (trace.moves[0].shape, trace.moves[0].dtype) == ((4, 3), "float32")
    assert [(wait.call, str(wait.device), str(wait.site), wait.count) for wait in trace.waits] == [
        ("item", "cuda:0", "net.py:5", 1)
    ]
    assert trace.not_checked == (INFERRED,)


def test_operators_on_gpus_have_modules_and_parts_of_the_step(tmp_path: pathlib.Path) -> None:
    trace = opened(tmp_path, {"traceEvents": STEP})
    told = [
        (op.name, op.module, op.phase, str(op.output)) for op in trace.ops if op.name not in ("copy_", "_local_scalar_dense")
    ]
    assert told == [
        ("addmm", "Linear_0", "forward", "cuda:0"),
        ("mm", None, "backward", "cuda:0"),
        ("_foreach_add_", None, "optimizer", "cuda:0"),
    ]
    (root, linear) = trace.modules
    assert (root.path, root.class_name, linear.path, linear.class_name) == ("", "Net", "Linear_0", "Linear")
    assert [str(device) for device in linear.outputs] == ["cuda:0"]


def test_a_file_of_this_torch_opens_and_is_shown(tmp_path: pathlib.Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, with_modules=True) as profiled:
        model(torch.ones(2, 4)).sum().backward()
    profiled.export_chrome_trace(str(tmp_path / "real.json"))
    trace = devwidget.open(tmp_path / "real.json")
    assert [(event.path, event.class_name) for event in trace.modules] == [
        ("", "Sequential"),
        ("Linear_0", "Linear"),
        ("ReLU_0", "ReLU"),
    ]
    assert "inferred from the stacks of the profiler" in str(trace)
    trace.to_html(tmp_path / "page.html")


@pytest.mark.parametrize(
    "content",
    [
        {"traceEvents": 5},
        {"traceEvents": [{"name": "x", "ts": "later"}]},
        {"traceEvents": [{"name": "k", "ts": 1, "dur": 1, "cat": "kernel", "ph": "X", "args": 4}]},
    ],
)
def test_what_only_looks_like_a_trace_is_refused(tmp_path: pathlib.Path, content: Any) -> None:
    with pytest.raises(ValueError, match=r"not a trace of torch\.profiler"):
        opened(tmp_path, content)
