"""Steps as people train, run on the card and planned without one: what both say that they take."""

from __future__ import annotations

import contextlib
import functools
import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import devwidget
from devwidget.records.errors import DevwidgetError
from tests import zoo
from tests.extras.plan.measured import keeps_all_layers, measured_here, total

STEPS: tuple[tuple[Any, Any], ...] = ((None, None), (total, torch.optim.AdamW))
"""A forward, and a step: loss and optimizer."""
AdamW, SGD = torch.optim.AdamW, functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9)
CARD_NAMES = {"H100": "H100-80GB", "H200": "H100-80GB", "A100": "A100-80GB", "V100": "V100-16GB", "T4": "T4"}
"""How a plan names a kind; an H200 has the kernels and workspaces of an H100."""


@dataclass(frozen=True)
class Job:
    """One step.

    Attributes:
        make: the model.
        batch: its arguments by name, or one tensor.
        optimizer: a class or a partial; None for a forward without gradients.
        options: the loop, as `devwidget.plan` takes it.
        dtype: of the parameters.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[], Any]
    optimizer: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32


def ids(batch: int, length: int, labels: bool = True) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        tokens = torch.ones(batch, length, dtype=torch.long)
        return {"input_ids": tokens, "labels": tokens} if labels else {"input_ids": tokens}

    return make


def images(batch: int, size: int = 224) -> Callable[[], Any]:
    return lambda: {"pixel_values": torch.zeros(batch, 3, size, size), "labels": torch.zeros(batch, dtype=torch.long)}


def model_of(config: str, model: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))  # type: ignore[no-any-return]

    return make


GPT2 = model_of("GPT2Config", "GPT2LMHeadModel")
GPT2_MEDIUM = model_of("GPT2Config", "GPT2LMHeadModel", n_embd=1024, n_layer=24, n_head=16)
BERT = model_of("BertConfig", "BertForSequenceClassification")
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
BERT_LARGE = model_of("BertConfig", "BertForSequenceClassification", **LARGE)
VIT = model_of("ViTConfig", "ViTForImageClassification", num_labels=1000)
RESNET = model_of("ResNetConfig", "ResNetForImageClassification", num_labels=1000)
_START = {"decoder_start_token_id": 0, "pad_token_id": 0}
T5 = model_of("T5Config", "T5ForConditionalGeneration", d_model=512, num_layers=6, num_heads=8, d_ff=2048, **_START)
_TINY = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_key_value_heads": 4}
LLAMA = model_of("LlamaConfig", "LlamaForCausalLM", **_TINY)
_QWEN = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
QWEN = model_of("Qwen2Config", "Qwen2ForCausalLM", **_QWEN, num_key_value_heads=2, tie_word_embeddings=True)
HALF = {"autocast": torch.bfloat16}


def adapted(make: Callable[[], nn.Module], rank: int, *names: str) -> Callable[[], nn.Module]:
    """Low-rank adapters by PEFT, in float32 where it leaves them so, beside weights that rest."""

    def make_adapted() -> nn.Module:
        import peft

        config = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=list(names), task_type="CAUSAL_LM")
        return peft.get_peft_model(make(), config)  # type: ignore[arg-type, return-value]

    return make_adapted


LLAMA_LORA = adapted(LLAMA, 16, "q_proj", "v_proj")
LLAMA_LORA_ALL = adapted(LLAMA, 64, "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ONE_LABEL: Callable[[int, int], Callable[[], Any]] = lambda batch, length: (
    lambda: {
        "input_ids": torch.ones(batch, length, dtype=torch.long),
        "labels": torch.zeros(batch, dtype=torch.long),
    }
)

JOBS = {
    "GPT-2 124M, 8 x 512": Job(GPT2, ids(8, 512), AdamW),
    "GPT-2 124M, 8 x 512, plain loop": Job(GPT2, ids(8, 512), AdamW, {"loop": "plain"}),
    "GPT-2 124M, 8 x 512, SGD with momentum": Job(GPT2, ids(8, 512), SGD),
    "GPT-2 124M, 8 x 512, bfloat16 under autocast": Job(GPT2, ids(8, 512), AdamW, HALF),
    "GPT-2 124M, 8 x 512, checkpointing": Job(GPT2, ids(8, 512), AdamW, {"checkpointing": True}),
    "GPT-2 124M, 4 batches of 2 x 512": Job(GPT2, ids(2, 512), AdamW, {"accumulate": 4}),
    "GPT-2 355M, 4 x 1024, bfloat16 under autocast": Job(GPT2_MEDIUM, ids(4, 1024), AdamW, HALF),
    "BERT-base, 32 x 128": Job(BERT, ONE_LABEL(32, 128), AdamW),
    "BERT-large, 8 x 512, float16 and GradScaler": Job(
        BERT_LARGE, ONE_LABEL(8, 512), AdamW, {"autocast": torch.float16, "grad_scaler": True}
    ),
    "BERT-large, 16 x 384, gradients set to zero": Job(BERT_LARGE, ONE_LABEL(16, 384), AdamW, {"zero_grad": "zero"}),
    "ViT-B/16, 64": Job(VIT, images(64), AdamW),
    "ViT-B/16, 64, bfloat16 under autocast": Job(VIT, images(64), AdamW, HALF),
    "ResNet-50, 64": Job(RESNET, images(64), SGD),
    "ResNet-50, 64, bfloat16 under autocast": Job(RESNET, images(64), SGD, HALF),
    "T5, 60M, 8 x 256": Job(T5, ids(8, 256), AdamW),
    "Llama 1.1B, bfloat16, 4 x 2048": Job(LLAMA, ids(4, 2048), AdamW, dtype=torch.bfloat16),
    "Llama 1.1B, bfloat16, 4 x 2048, checkpointing": Job(
        LLAMA, ids(4, 2048), AdamW, {"checkpointing": True}, dtype=torch.bfloat16
    ),
    "Llama 1.1B with LoRA of rank 16, bfloat16, 4 x 1024": Job(LLAMA_LORA, ids(4, 1024), AdamW, dtype=torch.bfloat16),
    "Llama 1.1B with LoRA of rank 64 everywhere, bfloat16, 4 x 1024": Job(
        LLAMA_LORA_ALL, ids(4, 1024), AdamW, dtype=torch.bfloat16
    ),
    "Llama 1.1B with LoRA of rank 16, float32 under autocast, 2 x 1024": Job(LLAMA_LORA, ids(2, 1024), AdamW, HALF),
    "Llama 1.1B, bfloat16, forward of 8 x 2048": Job(LLAMA, ids(8, 2048, labels=False), dtype=torch.bfloat16),
    "Qwen2 0.5B, bfloat16 under autocast, 4 x 1024": Job(QWEN, ids(4, 1024), AdamW, HALF),
    "Qwen2 0.5B, bfloat16, forward of 16 x 1024": Job(QWEN, ids(16, 1024, labels=False), dtype=torch.bfloat16),
}
GENERATIONS = {
    "GPT-2 124M, 8 x 64 and 448 more": (GPT2, (8, 64), 448, torch.float32, 1),
    "GPT-2 124M, 8 x 64 and 192 more by 4 beams": (GPT2, (8, 64), 192, torch.float32, 4),
    "Llama 1.1B, bfloat16, 8 x 512 and 128 more": (LLAMA, (8, 512), 128, torch.bfloat16, 1),
    "Llama 1.1B, bfloat16, 4 x 512 and 64 more by 3 beams": (LLAMA, (4, 512), 64, torch.bfloat16, 3),
    "Qwen2 0.5B, bfloat16, 32 x 512 and 64 more": (QWEN, (32, 512), 64, torch.bfloat16, 1),
    "Qwen2 0.5B, bfloat16, 8 x 512 and 64 more by 2 beams": (QWEN, (8, 512), 64, torch.bfloat16, 2),
}
"""Model, batch and length, new tokens, dtype, beams."""


def kind_of_card() -> str:
    """The kind of the card of this process, for a plan."""
    name = torch.cuda.get_device_name(0)
    return next((kind for part, kind in CARD_NAMES.items() if part in name), "A100-80GB")


def run_jobs(names: list[str]) -> dict[str, dict[str, int]]:
    """Bytes allocated and reserved at most, of the third step; and what the process takes of the card besides."""
    found = {}
    for name in names:
        clear()
        reset = torch.cuda.max_memory_allocated()
        try:
            (_run_generation if name in GENERATIONS else _run_job)(name)
        except torch.cuda.OutOfMemoryError:
            found[name] = {"allocated": -1, "reserved": -1, "before": reset}
            continue
        found[name] = {
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
            "before": reset,
        }
    return found


def clear() -> None:
    """As at the start of a process."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def _run_job(name: str) -> None:
    """Training as a user writes it."""
    job = JOBS[name]
    with torch.device("cuda"):
        model = job.make().to(job.dtype)
    batch = {key: value.to("cuda") for key, value in job.batch().items()}
    clear()  # of the weights in another dtype
    if job.optimizer is None:
        model.eval()
        with torch.no_grad():
            model(**batch)
        return
    model.train()
    if checkpointing := job.options.get("checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})  # type: ignore[operator]
    _train(model, batch, job.optimizer(model.parameters()), **{key: job.options[key] for key in job.options if key in _OURS})


_OURS = {"loop", "accumulate", "autocast", "grad_scaler", "zero_grad"}


def _train(
    model: nn.Module,
    batch: Any,
    optimizer: Any,
    loop: str = "step",
    accumulate: int = 1,
    autocast: Any = None,
    grad_scaler: bool = False,
    zero_grad: str = "none",
) -> None:
    scaler = torch.amp.GradScaler("cuda", enabled=grad_scaler)

    def forward() -> Any:
        with torch.autocast("cuda", autocast) if autocast else contextlib.nullcontext():
            return model(**batch)

    def update() -> None:
        scaler.step(optimizer)
        scaler.update()

    def step() -> None:
        optimizer.zero_grad(set_to_none=zero_grad == "none")
        for _ in range(accumulate):
            out = forward()  # it is there until the next one, and while the optimizer runs
            scaler.scale(out.loss).backward()
        update()

    for _ in range(3):
        if loop == "plain":
            optimizer.zero_grad(set_to_none=zero_grad == "none")
            out = forward()
            scaler.scale(out.loss).backward()
            update()
        else:
            step()


def _run_generation(name: str) -> None:
    make, (batch, length), new, dtype, beams = GENERATIONS[name]
    with torch.device("cuda"):
        model = make().to(dtype).eval()
        tokens = torch.ones(batch, length, dtype=torch.long)
    clear()
    model.generation_config.eos_token_id = None  # type: ignore[union-attr]
    asked = {"max_new_tokens": new, "do_sample": False, "pad_token_id": 0, "num_beams": beams}
    model.generate(tokens, attention_mask=torch.ones_like(tokens), **asked)  # type: ignore[operator]


def plan_jobs(names: list[str], card: str) -> dict[str, dict[str, float]]:
    """The same, planned."""
    warnings.simplefilter("ignore")
    found = {}
    for name in names:
        device = plan_generation(name, card) if name in GENERATIONS else plan_job(JOBS[name], card)
        found[name] = device
    return found


def plan_job(job: Job, card: str) -> dict[str, float]:
    """Of one job: bytes allocated, reserved, and on the card."""
    with torch.device("meta"):
        model = job.make().to(job.dtype)
    if job.optimizer is None:
        model.eval()
        with torch.no_grad():
            plan = devwidget.plan(model, job.batch(), card=card)
    else:
        asked = {"loop": "step", **job.options}
        plan = devwidget.plan(model.train(), job.batch(), card=card, optimizer=job.optimizer, **asked)
    device = plan.devices[0]
    return {"allocated": device.peak, "reserved": device.reserved, "on the card": device.on_card}


def plan_generation(name: str, card: str) -> dict[str, float]:
    """Of one generation: bytes allocated."""
    make, (batch, length), new, dtype, beams = GENERATIONS[name]
    with torch.device("meta"):
        model = make().to(dtype).eval()
    with torch.no_grad():
        plan = devwidget.plan(model, {"input_ids": torch.ones(batch, length, dtype=torch.long)}, card=card)
    generation = plan.generation(new, num_beams=beams)
    return {"allocated": generation.peak, "reserved": 0}


def measure_models(names: list[str]) -> dict[str, list[int]]:
    """Of models of transformers the peak of a forward, and of the second step of AdamW."""
    found = {}
    for name, model, kwargs in small_models(names):
        peaks = []
        for loss_fn, optimizer in STEPS:
            clear()
            peaks += measured_here(model, kwargs, loss_fn, optimizer)
        found[name] = peaks
    return found


def plan_models(names: list[str], card: str) -> dict[str, list[int]]:
    """The same, planned; [] for a model that needs values."""
    found: dict[str, list[int]] = {}
    for name, model, kwargs in small_models(names):
        found[name] = []
        for loss_fn, optimizer in STEPS:
            with contextlib.suppress(DevwidgetError):
                plan = devwidget.plan(model, kwargs, card=card, loss_fn=loss_fn, optimizer=optimizer)
                found[name].append(plan.devices[0].peak)
    return found


def small_models(names: list[str]) -> Any:
    """Name, model, arguments."""
    warnings.simplefilter("ignore")
    for path, model, _, kwargs in zoo.iter_core(names=names, training=True):
        yield path.rsplit(".", 1)[1], keeps_all_layers(model), kwargs
