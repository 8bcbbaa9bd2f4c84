"""Wrapped, sharded, offloaded, lazy, sparse and quantized modules are read for what they are, and nothing crashes."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel.replicate import _replicatable_module

from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.capture.snapshot.wrapper_facts import find_wrapping
from devwidget.records.device import CPU, DeviceId
from devwidget.records.loading import json_io
from devwidget.records.snapshot import ModuleFacts, TensorFacts


def only(model: nn.Module, name: str, path: str = "") -> TensorFacts:
    snapshot = take_snapshot(model)
    assert json_io.loads(json_io.dumps(snapshot)) == snapshot
    return next(t for facts in snapshot.modules if facts.path == path for t in facts.tensors if t.name == name)


def facts_of(model: nn.Module, path: str = "") -> ModuleFacts:
    return next(facts for facts in take_snapshot(model).modules if facts.path == path)


def buffered(tensor: torch.Tensor) -> nn.Module:
    model = nn.Module()
    model.register_buffer("it", tensor)
    return model


# -- odd tensors


def test_lazy_parameters_have_no_shape_and_no_bytes() -> None:
    facts = only(nn.LazyLinear(3), "weight")
    assert (facts.shape, facts.bytes, facts.note) == (None, 0, "lazy: not initialised yet")


def test_meta_tensors_take_no_bytes_and_say_their_size() -> None:
    facts = only(nn.Linear(4, 2, device="meta"), "weight")
    assert (facts.device, facts.bytes, facts.storage_bytes) == (DeviceId("meta"), 0, 0)
    assert (facts.shape, facts.note) == ((2, 4), "32 bytes once it is loaded")


def test_tied_weights_on_meta_are_tied() -> None:
    model = nn.Sequential(nn.Linear(2, 2, device="meta"), nn.Linear(2, 2, device="meta"))
    model[1].weight = model[0].weight
    assert only(model, "weight", "1").tied_to == "0.weight"


def test_a_sparse_gradient_is_counted() -> None:
    model = nn.Embedding(10, 4, sparse=True)
    model(torch.tensor([1, 2])).sum().backward()
    assert only(model, "weight").grad_bytes == 2 * 8 + 2 * 4 * 4


def test_fake_tensors_take_no_bytes_on_the_device_that_they_pretend() -> None:
    with FakeTensorMode():
        tensor = torch.empty(4, 4, device="cuda:1")
    facts = only(buffered(tensor), "it")
    assert (facts.device, facts.bytes, facts.note) == (DeviceId("cuda", 1), 0, "fake: no data behind it")


@pytest.mark.filterwarnings("ignore")  # nested tensors are a prototype
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_read(layout: torch.layout) -> None:
    facts = only(buffered(torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)], layout=layout)), "it")
    assert facts.bytes >= 72
    assert facts.shape is not None
    assert facts.shape[:2] == (2, -1)


@pytest.mark.filterwarnings("ignore")  # CSR is in beta, quantization deprecated
@pytest.mark.parametrize(
    ("make", "shape", "size", "note"),
    [
        (lambda: torch.eye(4).to_sparse(), (4, 4), 80, "sparse"),
        (lambda: torch.eye(4).to_sparse_csr(), (4, 4), 16 + 8 * (5 + 4), "sparse"),
        (lambda: torch.zeros(3, 5).to_mkldnn(), (3, 5), 60, "mkldnn layout"),
        (lambda: torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8), (4,), 4, ""),
    ],
    ids=["sparse", "csr", "mkldnn", "quantized"],
)
def test_tensors_of_odd_layouts_are_read(
    make: Callable[[], torch.Tensor], shape: tuple[int, ...], size: int, note: str
) -> None:
    facts = only(buffered(make()), "it")
    assert (facts.shape, facts.bytes) == (shape, size)
    assert facts.note.startswith(note)


def test_a_subclass_of_tensor_is_read_without_its_torch_function() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            raise AssertionError(f"called {func}")

    facts = only(buffered(torch.zeros(4).as_subclass(Loud)), "it")
    assert (facts.bytes, facts.note) == (16, "")


def test_a_wrapper_subclass_counts_what_it_wraps() -> None:
    class Packed(torch.Tensor):
        @staticmethod
        def __new__(cls, low: torch.Tensor, high: torch.Tensor) -> Packed:
            return torch.Tensor._make_wrapper_subclass(cls, (8,), dtype=torch.float32)  # type: ignore[return-value]

        def __init__(self, low: torch.Tensor, high: torch.Tensor) -> None:
            self.low, self.high = low, high

        def __tensor_flatten__(self) -> tuple[list[str], None]:
            return ["low", "high"], None

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            raise AssertionError(f"called {func}")

    facts = only(buffered(Packed(torch.zeros(4, dtype=torch.uint8), torch.zeros(2))), "it")
    assert (facts.bytes, facts.note) == (12, "packed by Packed")


# -- wrappers in one process


def test_data_parallel_without_an_accelerator_says_what_it_does() -> None:
    facts = facts_of(nn.DataParallel(nn.Linear(2, 2)))
    assert facts.wrapper == "DataParallel"
    assert facts.note == "no accelerator was available: it calls the module directly"


def test_data_parallel_with_devices_names_them() -> None:
    own = {"device_ids": [0, 1], "output_device": 0, "src_device_obj": torch.device("cuda:0")}
    assert find_wrapping(nn.DataParallel).note(own) == "device_ids [0, 1], gathers on cuda:0"


def test_a_replica_shows_its_parameters_once() -> None:
    model = nn.Linear(2, 2)
    assert _replicatable_module(model)
    replica = model._replicate_for_data_parallel()
    replica._former_parameters = {}
    for name, tensor in model.named_parameters():
        setattr(replica, name, tensor.detach().clone())
        replica._former_parameters[name] = getattr(replica, name)
    facts = facts_of(replica)
    assert facts.wrapper == "replica"
    assert [(each.name, each.role) for each in facts.tensors] == [("weight", "parameter"), ("bias", "parameter")]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # raised while torch imports its compiler
def test_a_compiled_model_is_named_and_its_module_listed() -> None:
    snapshot = take_snapshot(torch.compile(nn.Linear(2, 2)))  # type: ignore[arg-type]
    assert [(each.path, each.wrapper) for each in snapshot.modules] == [("", "compiled"), ("_orig_mod", "")]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_module_compiled_in_place_keeps_its_class() -> None:
    model = nn.Linear(2, 2)
    model.compile()
    facts = facts_of(model)
    assert (facts.class_name, facts.wrapper, facts.note) == ("Linear", "compiled", "compiled in place")


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
def test_a_scripted_model_keeps_its_class_names_and_flags() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))).eval()
    snapshot = take_snapshot(model)
    assert [each.class_name for each in snapshot.modules] == ["Sequential", "Linear", "BatchNorm1d"]
    assert {(each.wrapper, each.training) for each in snapshot.modules} == {("scripted", False)}
    assert [each.name for each in snapshot.modules[1].tensors] == ["weight", "bias"]


def test_an_fx_graph_module_is_read() -> None:
    facts = facts_of(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))))
    assert facts.wrapper == "fx graph"


def test_a_parametrized_module_shows_the_original_and_runs_nothing() -> None:
    class Loud(nn.Module):
        calls = 0

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            Loud.calls += 1
            return value

    model = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(model, "weight", Loud())
    before = Loud.calls
    facts = facts_of(model)
    assert (facts.class_name, facts.wrapper, facts.note) == ("Linear", "parametrized", "weight through Loud")
    assert only(model, "original", "parametrizations.weight").shape == (2, 2)
    assert Loud.calls == before


# -- accelerate


def test_weights_offloaded_to_the_cpu_are_shown_there() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(4, 2))
    accelerate.cpu_offload(model, execution_device="cpu")
    facts = only(model, "weight", "0")
    assert (facts.device, facts.bytes, facts.note) == (CPU, 32, "offloaded to cpu")
    assert model[0].weight.is_meta
    hooked = facts_of(model, "0")
    assert (hooked.wrapper, hooked.note) == ("accelerate", "runs on cpu, offloaded between calls")


def test_weights_offloaded_to_disk_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(4, 2))
    accelerate.disk_offload(model, tmp_path, execution_device="cpu")
    loader = accelerate.utils.OffloadedWeightsLoader
    monkeypatch.setattr(loader, "__getitem__", lambda self, key: pytest.fail("loaded a weight"))
    facts = only(model, "weight", "0")
    assert (facts.device.kind, facts.bytes) == ("meta", 0)
    assert facts.note == "offloaded to disk; 32 bytes once it is loaded"


def test_a_device_map_is_counted() -> None:
    model = nn.Linear(2, 2)
    model.hf_device_map = {"a": 0, "b": 0, "c": "cpu"}
    assert facts_of(model).note == "device map: 0 x2, cpu x1"


# -- several processes, here as one of a fake group


@pytest.fixture
def _four_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts one of its own there and leaves it
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_four_ranks")
def test_fsdp2_counts_the_local_shard() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(8, 8, bias=False))
    fully_shard(model[0], mesh=init_device_mesh("cpu", (4,)))
    facts, weight = facts_of(model, "0"), only(model, "weight", "0")
    assert (facts.class_name, facts.wrapper) == ("Linear", "FSDP2")
    assert (weight.shape, weight.bytes, weight.device) == ((8, 8), 64, CPU)
    assert weight.note == "shard 0 of 4 along dim 0, here (2, 8)"


@pytest.mark.usefixtures("_four_ranks")
def test_fsdp1_shows_the_views_of_its_flat_parameter_as_such() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FSDP1 is deprecated
        model = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))
    snapshot = take_snapshot(model)
    assert snapshot.modules[0].wrapper == "FSDP"
    views = [each for facts in snapshot.modules for each in facts.tensors if each.role == "attribute"]
    assert views
    assert all(each.note for each in views)


@pytest.mark.usefixtures("_four_ranks")
def test_tensor_parallel_shards_and_replicas_are_named() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2))
    tensor = distribute_tensor(torch.zeros(4, 6), mesh, [Replicate(), Shard(1)])
    facts = only(buffered(tensor), "it")
    assert (facts.shape, facts.bytes) == ((4, 6), 48)
    assert facts.note == "replicated on 2, shard 0 of 2 along dim 1, here (4, 3)"


@pytest.mark.usefixtures("_four_ranks")
def test_distributed_data_parallel_names_its_rank_and_repeats_nothing() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model = nn.parallel.DistributedDataParallel(inner)
    snapshot = take_snapshot(model)
    assert (snapshot.modules[0].wrapper, snapshot.modules[0].note) == ("DistributedDataParallel", "rank 0 of 4")
    assert {each.role for facts in snapshot.modules for each in facts.tensors} == {"parameter", "buffer"}


@pytest.mark.process
@pytest.mark.slow
def test_a_sparse_tensor_is_read_in_a_process_that_has_recorded_nothing() -> None:
    program = (
        "import torch, devwidget\nmodel = torch.nn.Module()\nmodel.register_buffer('it', torch.eye(3).to_sparse())\n"
        "print(devwidget.snapshot(model).modules[0].tensors[0].note)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "sparse, 3 values"
