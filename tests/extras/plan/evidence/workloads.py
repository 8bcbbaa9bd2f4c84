"""What was run on the cards, as it is run here: without values, on a virtual one."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import nn

import devwidget
from devwidget.extras.plan.by_name import AdamW8bit, add_adapters
from devwidget.gpus.card_models import CARDS, CardModel
from tests.extras.plan.evidence import titan
from tests.extras.plan.evidence.decoders import VOCABULARY, AdamWByHand, Decoder, cross_entropy, cross_entropy_of_softmax
from tests.extras.plan.evidence.vision import VisionTransformer
from tests.gpu import jobs

Figures = dict[str, float]


class Keeping(AdamWByHand):
    """Gradients are set to zero and kept, as was usual before torch 2.0."""

    def zero_grad(self, set_to_none: bool = False) -> None:
        super().zero_grad(set_to_none=set_to_none)


def planned(
    make: Callable[[], nn.Module], batch: dict[str, Any], card: str, optimizer: Any, loss_fn: Any = None, **loop: Any
) -> Figures:
    """The second step, as `devwidget.plan` predicts it; its loop is that of Trainer unless another is named."""
    with torch.device("meta"):
        model = make()
    asked = {"loop": "trainer", **loop}
    device = devwidget.plan(model.train(), batch, card=card, loss_fn=loss_fn, optimizer=optimizer, **asked).devices[0]
    return {"allocated": device.peak, "reserved": device.reserved, "on the card": device.on_card}


def run(make: Callable[[], nn.Module], card: str, steps: Callable[[nn.Module], None]) -> Figures:
    """The peaks of a program of one's own."""
    with torch.device("meta"):
        model = make()
    with devwidget.simulate(1, card=card, compute=False):
        model = model.to_empty(device="cuda")
        steps(model)
        found = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        del model
    return {name: float(size) for name, size in found.items()}


def _bert(**settings: Any) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(attn_implementation="eager", **settings))


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def _vit(**settings: Any) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(num_labels=1000, **settings))


LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.ones(batch, length, dtype=torch.long)


def _own_loss(out: Any) -> torch.Tensor:
    return out.loss  # type: ignore[no-any-return]


def _within_backward(model: nn.Module) -> None:
    each = {parameter: torch.optim.Adam([parameter], foreach=False) for parameter in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        model(torch.ones(1, 3, 224, 224, device="cuda")).logits.sum().backward()


@contextlib.contextmanager
def _precision(halved: bool) -> Iterator[None]:
    with torch.autocast("cuda", torch.bfloat16, enabled=halved):
        yield


def _forward(length: int, halved: bool, model: nn.Module) -> None:
    with _precision(halved):
        model(torch.randint(0, VOCABULARY, (4, length), device="cuda"))


def _first_step(length: int, model: nn.Module) -> None:
    ids, optimizer = torch.randint(0, VOCABULARY, (4, length), device="cuda"), AdamWByHand(model.parameters())
    cross_entropy(model(ids), ids).backward()
    optimizer.step()


def _both_ways(batch: int, halved: bool, model: nn.Module) -> None:
    ids = torch.randint(0, VOCABULARY, (batch, 256), device="cuda")
    for _ in range(2):
        model.zero_grad()
        with _precision(halved):
            logits = model(ids)
            loss = cross_entropy_of_softmax(logits, ids)
        loss.backward()


def _two_graphs(model: nn.Module) -> None:
    ids = torch.randint(0, VOCABULARY, (32, 256), device="cuda")
    for _ in range(2):
        logits = model(ids)
    del logits


@torch.no_grad()
def _inference(length: int, model: nn.Module) -> None:
    model.eval()(_ids(8, length).cuda())


def _beyond(length: int, shorter: int) -> Figures:
    longer, short = (run(_bert, "T4", partial(_inference, each))["reserved"] for each in (length, shorter))
    return {"reserved": longer - short}


def _power(adapted: bool) -> nn.Module:
    """PowerLM-3b."""
    from transformers import GraniteConfig, GraniteForCausalLM

    sizes = {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 40, "num_attention_heads": 36}
    config = GraniteConfig(vocab_size=49152, num_key_value_heads=36, tie_word_embeddings=True, **sizes)
    return _adapt(GraniteForCausalLM(config), adapted)


def _mistral(adapted: bool) -> nn.Module:
    """Mistral-7B-v0.1."""
    from transformers import MistralConfig, MistralForCausalLM

    return _adapt(MistralForCausalLM(MistralConfig(vocab_size=32000, sliding_window=4096)), adapted)


def _adapt(model: nn.Module, adapted: bool) -> nn.Module:
    model = model.bfloat16()
    return add_adapters(model, dropout=0.1) if adapted else model


def _shifted_loss(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **_: Any) -> torch.Tensor:
    """`ForCausalLMLoss` of transformers 4.48, which copies the logits of all tokens but the last; later ones shift the labels.

    Source: `loss_utils.py` of 4.48.1; 4.45.2 has the same lines in each model.
    """
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    return torch.nn.functional.cross_entropy(shifted.view(-1, vocab_size), labels[..., 1:].contiguous().view(-1))


class _Widening:
    """In place of the number by which Granite divides its logits: they are in float32 after it."""

    def __rtruediv__(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.float()


def _with_older_loss(make: Callable[[], nn.Module], widened: bool) -> nn.Module:
    """A model of transformers 4.48; of 4.45 if `widened`, which kept the logits in float32 alone."""
    model: Any = make()
    model.loss_function = _shifted_loss
    scaling = getattr(model.config, "logits_scaling", None)
    if widened and scaling is None:
        model.lm_head.register_forward_hook(lambda head, given, logits: logits.float())
    elif widened:
        model.lm_head.register_forward_hook(lambda head, given, logits: logits / scaling)
        vars(model.config)["logits_scaling"] = _Widening()
    return model  # type: ignore[no-any-return]


def _tuned(make: Callable[[], nn.Module], batch: int, widened: bool = True) -> Figures:
    """As fms-acceleration tunes: texts of 4,096 tokens without a gap, checkpointing."""
    ids = _ids(batch, 4096)
    batch_of = {"input_ids": ids, "labels": ids}
    return planned(partial(_with_older_loss, make, widened), batch_of, "A100-80GB", torch.optim.AdamW, checkpointing=True)


class _OlderSoftmax(torch.autograd.Function):
    """As torch had it before 1.11: what went in was kept for backward, which asked for its dtype alone."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, dim: int, dtype: torch.dtype | None) -> torch.Tensor:
        out = torch.softmax(scores, dim, dtype)
        ctx.dim = dim
        ctx.save_for_backward(scores, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        scores, out = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, out, ctx.dim, scores.dtype), None, None


def _as_before_2022(planned: Callable[..., Figures], *args: Any, **kwargs: Any) -> Figures:
    def softmax(scores: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        lowered = torch.is_autocast_enabled("cuda") and scores.dtype in (torch.float16, torch.bfloat16)
        return _OlderSoftmax.apply(scores.float() if lowered else scores, dim, dtype)  # type: ignore[no-any-return]

    with mock.patch.object(torch.nn.functional, "softmax", softmax):
        return planned(*args, **kwargs)


def _zeroing(batch: int, make_optimizer: Callable[[], Any], **loop: Any) -> Figures:
    """BERT-large, with gradients that are set to zero and kept."""
    given = {"input_ids": _ids(batch, 512), "labels": torch.ones(batch, dtype=torch.long)}
    made = partial(_bert, **LARGE), given, "V100-16GB", make_optimizer()
    return _as_before_2022(planned, *made, zero_grad="zero", **loop)


def _adafactor() -> Any:
    from transformers.optimization import Adafactor

    return partial(Adafactor, lr=1e-3, scale_parameter=False, relative_step=False)


def _octocoder() -> Figures:
    """Written in bfloat16: 60 tokens after a question, taken to have 18."""
    from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

    config = GPTBigCodeConfig(n_positions=8192, n_embd=6144, n_layer=40, n_head=48, n_inner=24576, vocab_size=49152)
    with torch.device("meta"):
        model = GPTBigCodeForCausalLM(config).bfloat16().eval()
    with torch.no_grad():
        found = devwidget.plan(model, {"input_ids": _ids(1, 18)}, card="A100-80GB").generation(60)
    return {"allocated": found.peak, "reserved": found.reserved, "on the card": found.taken + found.context}


def _xlm_roberta() -> nn.Module:
    from transformers import XLMRobertaConfig, XLMRobertaForQuestionAnswering

    config = XLMRobertaConfig(vocab_size=250002, max_position_embeddings=514, type_vocab_size=1, attn_implementation="eager")
    return XLMRobertaForQuestionAnswering(config)


def _ranked(
    model: nn.Module, batch: Any, optimizer: Any, spread: Callable[[nn.Module, Any], object] | None = None, **asked: Any
) -> Figures:
    """One rank of two, as `devwidget.plan` predicts it."""
    mesh = {"ddp": 2} if spread is None else {"fsdp": 2}
    asked = {"parallel": mesh, "parallelize": spread, "card": "A100-80GB", **asked}
    rank = devwidget.plan(model.train(), batch, optimizer=optimizer, **asked).ranks[0]
    return {"allocated by a rank": rank.peak, "reserved": rank.reserved, "on the card": rank.on_card}


def _shard(widened: bool, model: nn.Module, mesh: Any) -> None:
    """Each layer is a unit; `widened` weights are in float32, and gathered in bfloat16."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    halves = torch.bfloat16 if widened else None
    for unit in (*model.get_submodule("model.layers").children(), model):
        fully_shard(unit, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=halves, reduce_dtype=halves))


def _tuned_on_two(make: Callable[[bool], nn.Module], adapted: bool, widened: bool, batch: int) -> Figures:
    """As fms-acceleration tunes on two GPUs."""
    with torch.device("meta"):
        model = _with_older_loss(partial(make, adapted), True)
        model = model.float() if widened else model
    ids = _ids(batch, 4096)
    asked = {"loop": "trainer", "checkpointing": True}
    return _ranked(model, {"input_ids": ids, "labels": ids}, torch.optim.AdamW, partial(_shard, widened), **asked)


@mock.patch.object(CardModel, "workspace_bytes", 0)
def _replicated(optimizer: Any) -> Figures:
    """The program of the recipe, with torch of 2021: cuBLAS took its workspaces itself, not from torch's allocator."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(2000, 2000) for _ in range(20)))
    loss = {"loss_fn": nn.functional.mse_loss, "target": torch.zeros(20, 2000)}
    return _ranked(model, torch.zeros(20, 2000), optimizer, **loss)


def _in_zero() -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    class OlderOptimizer(ZeroRedundancyOptimizer):
        """Parameters go to ranks in their order, as in torch 1.8; later ones sort them, and Adam meets all weights at once."""

        def _get_parameters_per_rank(self) -> list[list[torch.Tensor]]:
            found: list[list[torch.Tensor]] = [[] for _ in range(self.world_size)]
            for parameter in self.param_groups[0]["params"]:
                min(found, key=lambda each: sum(tensor.numel() for tensor in each)).append(parameter)
            return found

        def _partition_parameters(self, params_per_rank: Any = None) -> Any:
            if not self._partition_parameters_cache:
                self._partition_parameters_cache = [[] for _ in range(self.world_size)]
                self._partition_param_group(self.param_groups[0], self._get_parameters_per_rank())
            return self._partition_parameters_cache

    return partial(OlderOptimizer, optimizer_class=torch.optim.Adam, lr=0.01, foreach=False)


_H100_OF_96 = {"h100-96gb": CardModel("H100-96GB", 94.99, 0.67, (9, 0), "the source of the rows")}


@mock.patch.dict(CARDS, _H100_OF_96)
@mock.patch.dict(os.environ, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
def _trained_by_titan(ranks: int) -> Figures:
    """Llama-3.1-8B with two texts of 8,192 tokens on each of so many GPUs."""
    with torch.device("meta"):
        model = titan.Llama(8192)
    asked = {"loss_fn": titan.compute_loss, "target": _ids(2, 8192), "loop": "trainer", "card": "H100-96GB"}
    mesh = {"parallel": {"fsdp": ranks}, "parallelize": titan.shard}
    rank = devwidget.plan(model.train(), _ids(2, 8192), optimizer=torch.optim.AdamW, **mesh, **asked).ranks[0]  # type: ignore[call-overload]
    return {"allocated by a rank": rank.peak, "reserved": rank.reserved}


def _llama(hidden: int, inner: int, layers: int, heads: int, attention: str) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32000, attn_implementation=attention, **sizes)).half()


_LLAMA_7B, _LLAMA_13B = partial(_llama, 4096, 11008, 32, 32), partial(_llama, 5120, 13824, 40, 40)


@torch.no_grad()
def _write_as_in_2023(texts: int, prompt: int, new: int, model: nn.Module) -> None:
    """All positions have logits, and the keys and values before a token live until those after it are whole."""
    from transformers import DynamicCache

    model.eval()
    model(_ids(texts, prompt).cuda(), use_cache=True)
    config: Any = model.config
    shape = texts, config.num_attention_heads, prompt + new - 2, config.hidden_size // config.num_attention_heads
    cache = DynamicCache(config=config)
    for layer in range(config.num_hidden_layers if new > 1 else 0):
        cache.update(torch.empty(shape, device="cuda").half(), torch.empty(shape, device="cuda").half(), layer)
    before = [(layer.keys, layer.values) for layer in cache.layers]
    # What transformers call it from 5.24 on, and before.
    name = next(each for each in ("cache", "past_key_values") if each in inspect.signature(type(model).forward).parameters)
    if new > 1:
        model(_ids(texts, 1).cuda(), use_cache=True, **{name: cache})
    before.clear()


def _written_beyond_one(texts: int, new: int) -> Figures:
    """What so many texts of 512 tokens take beyond one."""
    many, one = (
        run(partial(_LLAMA_13B, "eager"), "A100-80GB", partial(_write_as_in_2023, each, 512, new))["allocated"]
        for each in (texts, 1)
    )
    return {"allocated": many - one}


def _written_into_place() -> Figures:
    """LLaMA-7B with a cache that is there from the start; all positions have logits."""
    with torch.device("meta"):
        model = _LLAMA_7B("sdpa").eval()
    with torch.no_grad():
        plan = devwidget.plan(model, {"input_ids": _ids(1, 1000), "logits_to_keep": 0}, card="A10G")
    return {"allocated": plan.generation(200, cache="static").peak}


HALVED = {"autocast": torch.float16, "grad_scaler": True}
LEAN = {"accumulate": 4, "checkpointing": "reentrant"}


def _vit_huge(optimizer: Any) -> Figures:
    """ViT-H/14 for 45 classes under autocast, as torchao's benchmark trains it."""
    images = {"images": torch.ones(1, 3, 224, 224).expand(8, -1, -1, -1), "labels": torch.ones(8, dtype=torch.long)}
    make = partial(VisionTransformer, 1280, 32, 16, 14, 45)
    return planned(make, images, "A100-80GB", optimizer, loop="step", autocast=torch.bfloat16)


_BILLIONS = partial(Decoder, 32, 2560, 32)
_SMALL, _MEDIUM = partial(Decoder, 12, 768, 12, 256, handout=True), partial(Decoder, 36, 1280, 20, 256, handout=True)
_IDS, _ONE, _TWO = _ids(2, 16), torch.ones(1, 3, 224, 224), torch.ones(2, dtype=torch.long)

WORKLOADS: dict[str, Callable[[], Figures]] = {
    **{name: partial(jobs.plan_job, job, "H100-80GB") for name, job in jobs.JOBS.items()},
    **{name: partial(jobs.plan_generation, name, "H100-80GB") for name in jobs.GENERATIONS},
    "GPT-2 124M, batch 2 x 16": partial(
        planned, _gpt2, {"input_ids": _IDS, "labels": _IDS}, "A100-80GB", torch.optim.AdamW, _own_loss
    ),
    "ViT-B/16, batch 2": partial(
        planned, _vit, {"pixel_values": _ONE.expand(2, -1, -1, -1), "labels": _TWO}, "A100-80GB", torch.optim.AdamW, _own_loss
    ),
    "BERT-large, batch 4 x 512": partial(
        _as_before_2022,
        planned,
        partial(_bert, **LARGE),
        {"input_ids": _ids(4, 512), "labels": torch.ones(4, dtype=torch.long)},
        "V100-16GB",
        Keeping,
        _own_loss,
    ),
    "ViT-L/16, step": partial(
        planned, partial(_vit, **LARGE), {"pixel_values": _ONE}, "A100-80GB", torch.optim.Adam, lambda out: out.logits.sum(),
        loop="step",
    ),
    "ViT-L/16, step within backward": partial(run, partial(_vit, **LARGE), "A100-80GB", _within_backward),
    **{f"{name}, {batch} x 4096, {'LoRA' if adapted else 'full'}": partial(_tuned, partial(make, adapted), batch)
       for name, make in (("PowerLM-3b", _power), ("Mistral-7B", _mistral)) for adapted in (False, True) for batch in (4, 8)},
    **{f"Mistral-7B, {batch} x 4096, LoRA, transformers 4.48": partial(_tuned, partial(_mistral, True), batch, False)
       for batch in (4, 8)},
    "BERT-large, 4 batches of 1 accumulated": partial(_zeroing, 1, lambda: AdamWByHand, accumulate=4),
    "BERT-large, accumulated, checkpointing": partial(_zeroing, 1, lambda: AdamWByHand, **LEAN),
    "BERT-large, batch 4, fp16": partial(_zeroing, 4, lambda: AdamWByHand, **HALVED),
    "BERT-large, accumulated, checkpointing, fp16": partial(_zeroing, 1, lambda: AdamWByHand, **LEAN, **HALVED),
    "BERT-large, batch 4, Adafactor": partial(_zeroing, 4, _adafactor),
    "BERT-large, accumulated, checkpointing, fp16, Adafactor": partial(_zeroing, 1, _adafactor, **LEAN, **HALVED),
    "BERT-large, batch 4, 8-bit Adam": partial(_zeroing, 4, lambda: AdamW8bit),
    "BERT-large, accumulated, checkpointing, fp16, 8-bit Adam": partial(_zeroing, 1, lambda: AdamW8bit, **LEAN, **HALVED),
    "ViT-H/14, batch 8, 8-bit AdamW": partial(_vit_huge, AdamW8bit),
    "ViT-H/14, batch 8, AdamW": partial(_vit_huge, torch.optim.AdamW),
    "OctoCoder, 60 tokens": _octocoder,
    "XLM-RoBERTa, 16 x 384": partial(
        _as_before_2022, planned, _xlm_roberta,
        {"input_ids": _ids(16, 384), "start_positions": torch.ones(16, dtype=torch.long),
         "end_positions": torch.ones(16, dtype=torch.long)},
        "V100-16GB", Keeping,
    ),
    **{f"{name}, 2 GPUs, {batch} x 4096, {'LoRA' if adapted else 'full'}":
       partial(_tuned_on_two, make, adapted, widened and not adapted, batch)
       for name, make, widened in (("PowerLM-3b", _power, True), ("Mistral-7B", _mistral, False))
       for adapted in (False, True) for batch in (2, 4)},
    **{f"Llama-3.1-8B, FSDP2 over {ranks}, 2 x 8192": partial(_trained_by_titan, ranks) for ranks in (8, 128)},
    "20 layers of 2000, DDP over 2, before the step": partial(_replicated, partial(torch.optim.SGD, lr=0.01, foreach=False)),
    "20 layers of 2000, DDP over 2, Adam": partial(_replicated, partial(torch.optim.Adam, lr=0.01, foreach=False)),
    "20 layers of 2000, DDP over 2, Adam in ZeRO": lambda: _replicated(_in_zero()),
    "LLaMA-7B, 1000 tokens and 200 more": partial(
        run, partial(_LLAMA_7B, "eager"), "A10G", partial(_write_as_in_2023, 1, 1000, 200)),
    "LLaMA-7B, the same with a static cache": _written_into_place,
    **{f"Llama-2-13B, {texts} texts of 512 beyond 1, reading them": partial(_written_beyond_one, texts, 1)
       for texts in (2, 4, 16)},
    **{f"Llama-2-13B, {texts} texts beyond 1, writing 512 more": partial(_written_beyond_one, texts, 512)
       for texts in (2, 4, 8, 16)},
    "decoder 969M, float32, two graphs": partial(run, _MEDIUM, "A100-80GB", _two_graphs),
    "BERT-base, 512 beyond 32": partial(_beyond, 512, 32),
    **{f"decoder 3.4B, step of {size}": partial(run, partial(_BILLIONS, size), "H100-80GB", partial(_first_step, size))
       for size in (128, 512)},
    **{f"decoder 3.4B, {name}forward of {size}": partial(
        run, partial(_BILLIONS, size), "H100-80GB", partial(_forward, size, bool(name)))
       for size, name in ((128, ""), (512, ""), (512, "bfloat16 "))},
    **{f"decoder {size}, {name}": partial(run, make, "A100-80GB", partial(_both_ways, batch, name == "bfloat16"))
       for size, make, batch in (("129M", _SMALL, 64), ("969M", _MEDIUM, 32)) for name in ("float32", "bfloat16")},
}  # fmt: skip
