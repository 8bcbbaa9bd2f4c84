"""Small records for tests of views, reports and the panel: a model split over two GPUs, and a trace of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding, Fix
from devwidget.records.memory import DeviceMemory, Holding, MemoryCurve, MemoryPoint
from devwidget.records.parallel import DataParallelCall, Piece, Replica
from devwidget.records.site import Phase, Site
from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts
from devwidget.records.trace import Fault, ModuleEvent, Move, Trace

CPU, GPU0, GPU1 = DeviceId("cpu"), DeviceId("cuda", 0), DeviceId("cuda", 1)
MIB = 1024**2
GIB = 1024**3
_SIZES = {"float32": 4, "bool": 1, "int64": 8, "float16": 2}


def tensor(name: str, shape: tuple[int, ...] = (4,), device: DeviceId = CPU, *, storage: int = -1, **more: Any) -> TensorFacts:
    elements = 1
    for size in shape:
        elements *= size
    dtype = more.pop("dtype", "float32")
    size = elements * _SIZES[dtype]
    number = storage if storage >= 0 else hash((name, shape, device, id(more)))
    role = more.pop("role", "parameter")
    return TensorFacts(name, role, shape, dtype, device, size, number, size, requires_grad=role == "parameter", **more)


def site(line: int, text: str = "", file: str = "/home/ada/train.py", function: str = "forward") -> Site:
    return Site(file, line, text, function)


def split_model(virtual: int = 2) -> Snapshot:
    """encoder on cuda:0, decoder.head on cuda:1, a stray mask on the cpu, a tied weight."""
    modules = (
        ModuleFacts("", "Translator", -1, 0),
        ModuleFacts("encoder", "Encoder", 0, 1, defined=site(5, "class Encoder(nn.Module):")),
        ModuleFacts(
            "encoder.embed",
            "Embedding",
            1,
            2,
            (tensor("weight", (1000, 512), GPU0, storage=1, grad_bytes=2048000, grad_device=GPU0),),
        ),
        ModuleFacts(
            "encoder.attention",
            "CausalAttention",
            1,
            2,
            (
                tensor("weight", (512, 512), GPU0, storage=2),
                tensor("running", (512,), GPU0, storage=3, role="buffer"),
                tensor("mask", (1024, 1024), CPU, storage=4, role="attribute", dtype="bool"),
            ),
        ),
        ModuleFacts("decoder", "Decoder", 0, 1, wrapper="DataParallel"),
        ModuleFacts(
            "decoder.head",
            "Linear",
            4,
            2,
            (tensor("weight", (1000, 512), GPU1, storage=5), tensor("bias", (1000,), GPU1, storage=6)),
        ),
        ModuleFacts(
            "decoder.tied", "Embedding", 4, 2, (tensor("weight", (1000, 512), GPU0, storage=1, tied_to="encoder.embed.weight"),)
        ),
    )
    memory = (
        DeviceMemory(
            GPU0,
            "virtual GPU",
            virtual > 0,
            16 * MIB,
            parameters=3 * MIB,
            gradients=2 * MIB,
            activations=MIB,
            cache=MIB,
            free=9 * MIB,
        ),
        DeviceMemory(GPU1, "virtual GPU", virtual > 0, 16 * MIB, parameters=2 * MIB, free=14 * MIB, peak=5 * MIB),
        DeviceMemory(CPU, "", False, 0, attributes=MIB),
    )
    return Snapshot(modules, memory=memory, virtual_gpus=virtual)


def wrong_device() -> Finding:
    return Finding(
        kind="wrong-device",
        severity="error",
        module="decoder.head",
        headline="`addmm` got tensors on cuda:0 and cuda:1",
        why="all inputs of an op must be on one device; PyTorch does not move them",
        fault=site(41, "return self.head(hidden)"),
        birth=site(17, 'self.head.to("cuda:1")', function="__init__"),
        fixes=(
            Fix("move the smaller side, 16 KiB against 1.95 MiB", 'hidden = hidden.to("cuda:1")', "likely", verified=False),
        ),
        notes=("`decoder.head` was moved to cuda:1 at train.py:17; the layer before it stayed on cuda:0",),
        operands=("input f32[8, 512] cuda:0", "weight f32[1000, 512] cuda:1"),
    )


def unregistered() -> Finding:
    return Finding(
        kind="unregistered-tensor",
        severity="error",
        module="encoder.attention",
        headline="`attention.mask` stayed on cpu when the model was moved to cuda:0",
        why="`Module.to` moves parameters and buffers; a tensor stored with `self.mask = ...` is neither",
        also=("encoder.attention.mask",),
        fault=site(23, "scores = scores.masked_fill(self.mask, -1e9)"),
        birth=site(18, "self.mask = torch.ones(1024, 1024, dtype=torch.bool)", function="__init__"),
        fixes=(Fix("in `__init__`, write", 'self.register_buffer("mask", mask, persistent=False)', "sure", verified=True),),
    )


def one_step() -> Trace:
    line = site(40, 'x = x.to("cuda:1")')
    first = Move(GPU0, GPU1, 16384, (8, 512), "float32", "decoder", "forward", line, "explicit", 1e-4, 10)
    moves = (
        first,
        replace(first, number=20, count=3),
        Move(CPU, GPU0, MIB, (1024, 1024), "bool", "encoder.attention", "forward", site(23), "healed", 2e-3, 5),
    )
    modules = (
        ModuleEvent("", "Translator", (GPU0,), (GPU1,), 1, 0.02, number=0, stopped=30),
        ModuleEvent("encoder", "Encoder", (GPU0,), (GPU0,), 1, 0.01, number=1, stopped=8),
        ModuleEvent("encoder.embed", "Embedding", (GPU0,), (GPU0,), 1, 0.002, number=2, stopped=3),
        ModuleEvent("encoder.attention", "CausalAttention", (GPU0,), (GPU0,), 1, 0.004, number=4, stopped=7),
        ModuleEvent("decoder", "Decoder", (GPU0,), (GPU1,), 1, 0.01, number=9, failed=True, stopped=22),
        ModuleEvent("decoder.head", "Linear", (GPU0,), (GPU1,), 1, 0.001, number=12, failed=True, stopped=14),
    )
    faults = (
        Fault(13, "operands", "addmm", "decoder.head", "forward", site(41), "RuntimeError: mixed", target=GPU1, healed=True),
    )
    curves = (
        _curve(GPU0, 16 * MIB, (0, 2, 5, 1, 1), (0, 0, 0, 2, 2), 3),
        _curve(GPU1, 16 * MIB, (0, 0, 1, 0, 0), (0, 0, 0, 2, 4), 2),
    )
    return Trace(
        findings=(wrong_device(), unregistered()),
        faults=faults,
        moves=moves,
        modules=modules,
        memory=curves,
        checked=("wrong-device", "unregistered-tensor"),
        not_checked=("ping-pong: no backward pass in this trace",),
        virtual_gpus=2,
        seconds=0.021,
    )


def _curve(
    device: DeviceId, total: int, activations: tuple[int, ...], gradients: tuple[int, ...], parameters: int
) -> MemoryCurve:
    phases: tuple[Phase, ...] = ("build", "forward", "forward", "backward", "optimizer")
    modules = (None, "encoder", "decoder.head", "decoder.head", None)
    points = tuple(
        MemoryPoint(
            10 * place, phase, module, site(40 + place), (parameters + kept + gradient) * MIB,
            parameters=parameters * MIB, activations=kept * MIB, gradients=gradient * MIB,
        )
        for place, (phase, module, kept, gradient) in enumerate(zip(phases, modules, activations, gradients, strict=True))
    )  # fmt: skip
    holding = Holding("activations", max(activations) * MIB, "forward", "encoder", site(41))
    return MemoryCurve(DeviceMemory(device, "virtual GPU", True, total), "allocator", points, holdings=(holding,))


def data_parallel(replicas: int = 2, samples: int = 63, output_bytes: int = 40000) -> Trace:
    """A DataParallel step: the batch cut, parameters copied, outputs gathered on cuda:0, gradients added up there."""
    devices = [DeviceId("cuda", index) for index in range(replicas)]
    share = -(-samples // replicas)
    parts = [part for index in range(replicas) if (part := max(0, min(share, samples - share * index)))]
    source = devices[0]

    def piece(name: str, index: int, width: int, source: DeviceId) -> Piece:
        start, part = share * index, parts[index]
        return Piece(name, (part, width // 4), "float32", part * width, start, start + part, source)

    records = tuple(
        Replica(
            "decoder", index, device, part, part * 4096, 3 * MIB if index else 0, part * output_bytes, (5 + index) * MIB, 0.004,
            source, 1, MIB if index else 0, 2 * MIB if index else 0, 0.002, f"Thread-{index}", False,
            (piece("input", index, 4096, source),), (piece("output", index, output_bytes, device),),
        )
        for index, (device, part) in enumerate(zip(devices, parts, strict=False))
    )  # fmt: skip
    line = site(12, "out = decoder(batch)", function="<module>")
    seconds = (0.001, 0.01, 0.001, 0.002, 0.006, 0.001)
    call = DataParallelCall(1, "decoder", "Linear", tuple(devices), source, 0, line, *seconds, backward=True)
    there = ((index, source, device, "replicate", "forward") for index, device in enumerate(devices[1 : len(parts)]))
    back = ((50 + index, device, source, "reduce", "backward") for index, device in enumerate(devices[1 : len(parts)]))
    moves = tuple(
        Move(start, end, 3 * MIB, (1000, 786), "float32", "decoder", phase, line, cause, number=number)
        for number, start, end, cause, phase in (*there, *back)
    )
    memory = tuple(
        DeviceMemory(device, "virtual GPU", True, GIB, free=GIB, peak=9 * MIB if device == source else 6 * MIB, card=index,
                     uuid=f"c0ffee-{index}")
        for index, device in enumerate(devices)
    )  # fmt: skip
    curves = tuple(MemoryCurve(end, "allocator", ()) for end in memory)
    return Trace((), (), moves, replicas=records, parallel=(call,), memory=curves, checked=("wrong-device",),
                 virtual_gpus=replicas)  # fmt: skip
