"""`Plan.generation`: caches of keys and values against the closed formula, and peaks against generations with values."""

import inspect

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.plan.records.answers import CacheAt, Generation
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading import json_io
from tests.extras.plan.test_what_if import Reader

transformers = pytest.importorskip("transformers")
MIB = 1 << 20
CACHE = next(
    name for name in ("cache", "past_key_values") if name in inspect.signature(transformers.LlamaForCausalLM.forward).parameters
)
"""What transformers call it since 5.24, and before."""
LAYERS, HEADS, WIDTH, BATCH, PROMPT = 3, 4, 64, 8, 64
COMMON = {"vocab_size": 100, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
WITH_GROUPS = {**COMMON, "intermediate_size": 128, "num_key_value_heads": 2}
THREE = {
    "Llama": (WITH_GROUPS, 2),
    "GPTNeoX": ({**COMMON, "intermediate_size": 128}, HEADS),
    "GPT2": ({"vocab_size": 100, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS}, HEADS),
}
"""Architecture -> its settings, and how many heads of keys it has."""


def make(name):
    head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    return getattr(transformers, name + head)(getattr(transformers, name + "Config")(**THREE[name][0])).eval()


def plan(model, memory="64MiB"):
    with torch.no_grad():
        return devwidget.plan(model, {"input_ids": torch.ones(BATCH, PROMPT, dtype=torch.long)}, gpus=1, memory=memory)


@pytest.mark.parametrize("name", ["Llama", pytest.param("GPTNeoX", marks=pytest.mark.slow)])
def test_the_cache_is_what_the_closed_formula_says(name):
    found = plan(make(name)).generation(new_tokens=300)
    per_token = 2 * LAYERS * THREE[name][1] * (WIDTH // HEADS) * 4 * BATCH
    assert found.bytes_per_token == pytest.approx(per_token, rel=0.03)
    assert found.runs[-1].length == PROMPT + 300
    assert found.runs[-1].cache == pytest.approx(per_token * (PROMPT + 300), rel=0.03)


def written(model, tokens):
    """The peak of a generation with values."""
    with devwidget.simulate(1, "1GiB"), torch.no_grad():
        model = model.cuda()
        ids, cache = torch.ones(BATCH, PROMPT, dtype=torch.long).cuda(), None
        for _ in range(tokens + 1):
            out = model(ids, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
            cache, ids = out[CACHE], torch.ones(BATCH, 1, dtype=torch.long).cuda()
            del out
        return torch.cuda.max_memory_allocated()


def test_the_peak_is_that_of_writing_token_by_token():
    found = plan(make("GPT2")).generation(new_tokens=30)
    assert found.peak == pytest.approx(written(make("GPT2"), 30), rel=0.02)


class AllLogits(transformers.LlamaForCausalLM):
    """Whose head cannot be asked for some positions."""

    def forward(self, input_ids, use_cache=None, attention_mask=None, return_dict=None, **cache):
        return super().forward(input_ids, attention_mask, **cache, use_cache=use_cache)


class Older(AllLogits):
    """By the name of transformers before 4.49."""

    def forward(self, input_ids, use_cache=None, attention_mask=None, num_logits_to_keep=0, **cache):
        args = {**cache, "use_cache": use_cache, "logits_to_keep": num_logits_to_keep}
        return transformers.LlamaForCausalLM.forward(self, input_ids, attention_mask, **args)


def many_words(kind=transformers.LlamaForCausalLM):
    """Whose logits are most of what a prompt takes."""
    model = kind(transformers.LlamaConfig(**{**WITH_GROUPS, "vocab_size": 4000})).eval()
    model.generation_config.eos_token_id = None
    return model


def generated(model, **asked):
    """The peak of `generate`, with values."""
    with devwidget.simulate(1, "1GiB"), torch.no_grad():
        ids = torch.ones(BATCH, PROMPT, dtype=torch.long).cuda()
        exactly = {"min_new_tokens": 8, "max_new_tokens": 8, "do_sample": False}
        model.cuda().generate(ids, attention_mask=torch.ones_like(ids), **exactly, **asked)
        return torch.cuda.max_memory_allocated()


LOGITS = BATCH * PROMPT * 4000 * 4


@pytest.mark.parametrize(("kind", "logits"), [(transformers.LlamaForCausalLM, 1), (AllLogits, 0)])
def test_logits_are_those_that_generate_asks_for(kind, logits):
    found, real = plan(many_words(kind)).generation(new_tokens=8), generated(many_words(kind))
    assert (found.logits, real > LOGITS) == (logits, logits == 0)
    assert found.peak == pytest.approx(real, rel=0.05)
    assert ("only the last position" in str(found)) == (logits == 1)


@pytest.mark.slow
def test_a_static_cache_is_there_from_the_start():
    found = plan(many_words()).generation(new_tokens=8, cache="static")
    grown = plan(many_words()).generation(new_tokens=8)
    real = generated(many_words(), cache_implementation="static", disable_compile=True)
    assert found.peak == pytest.approx(real, rel=0.02)
    assert found.runs[-1].cache == pytest.approx(grown.bytes_per_token * (PROMPT + 7), rel=0.02)
    assert "a static cache takes" in str(found)
    longer = plan(many_words()).generation(new_tokens=800, cache="static")
    assert longer.runs[-1].prefill > found.runs[-1].prefill + 700 * found.bytes_per_token
    with pytest.raises(DevwidgetError, match="did you mean"):
        plan(many_words()).generation(new_tokens=8, cache="statics")


def test_older_models_are_asked_by_their_own_name():
    found = plan(many_words(Older)).generation(new_tokens=8)
    assert found.logits == 1
    assert found.peak < LOGITS


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (3, "3 positions of the prompt have"),
        (0, "every position"),
        (torch.arange(5), "5 positions of the prompt have"),
    ],
)
def test_what_the_batch_asks_for_goes_first(kept, told):
    batch = {"input_ids": torch.ones(BATCH, PROMPT, dtype=torch.long), "logits_to_keep": kept}
    with torch.no_grad():
        found = devwidget.plan(many_words(), batch, gpus=1, memory="1GiB").generation(new_tokens=8)
    assert told in str(found)
    assert (found.peak > LOGITS) == (found.logits == 0)


@pytest.mark.slow
def test_the_length_that_fills_a_gpu_is_told():
    longest = plan(make("Llama"), "8MiB").generation(new_tokens=10).longest
    assert plan(make("Llama"), "8MiB").generation(new_tokens=longest - PROMPT).fits
    assert written(make("Llama"), longest - PROMPT) <= 8 * MIB < written(make("Llama"), int(1.02 * longest) - PROMPT)


def test_on_a_card_what_is_reserved_has_to_fit():
    with torch.no_grad():
        batch = {"input_ids": torch.ones(BATCH, PROMPT, dtype=torch.long)}
        found = devwidget.plan(make("Llama"), batch, gpus=1, card="T4").generation(new_tokens=300)
    assert found.reserved >= found.peak
    assert found.reserved == max(found.runs[0].prefill_reserved, found.runs[-1].decode_reserved)
    assert found.fits == (found.reserved <= found.capacity)
    assert "reserved" in str(found)


def test_a_model_without_a_cache_is_refused():
    with pytest.raises(DevwidgetError, match="Reader cannot generate with a cache"):
        devwidget.plan(Reader(), {"ids": torch.zeros(2, 4, dtype=torch.long)}, gpus=1, memory="1GiB").generation(8)
    with pytest.raises(DevwidgetError, match="the batch holds no text"):
        devwidget.plan(nn.Linear(2, 2), torch.zeros(2, 2), gpus=1, memory="1GiB").generation(8)
    with pytest.raises(DevwidgetError, match="`num_beams` is 0"):
        plan(make("Llama")).generation(8, num_beams=0)
    with pytest.raises(DevwidgetError, match="`new_tokens` is 0"):
        devwidget.plan(nn.Linear(2, 2), torch.zeros(2, 2), gpus=1, memory="1GiB").generation(0)


FOUND = Generation("Net<2>", 64, 100, 3072.0, 3 * MIB, 2 * MIB, 120, False, (CacheAt(64, MIB, 2 * MIB, 3 * MIB),))


def test_text_page_frame_and_file_of_a_generation():
    assert str(FOUND).splitlines() == [
        "Net<2>: 100 tokens after 64 does not fit · 3.00 MiB of 2.00 MiB",
        "  tokens     cache  reading them  one more",
        "      64  1.00 MiB      2.00 MiB  3.00 MiB",
        "every position of the prompt has logits",
        "the cache grows by 3 KiB for each token of the batch, and a GPU is full at 120 tokens",
    ]
    assert json_io.loads(json_io.dumps(FOUND)) == FOUND
    assert "Net&lt;2&gt;" in FOUND.to_html()
    assert FOUND.to_frame()["cache"].tolist() == [MIB]


def wide(kind=transformers.LlamaForCausalLM):
    """Whose layers are more than what `generate` keeps of its texts."""
    sizes = {
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "vocab_size": 2000,
    }
    model = kind(transformers.LlamaConfig(**sizes)).eval()
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.slow
def test_beams_take_what_generate_takes():
    beams = 4
    found, real = plan(wide()).generation(new_tokens=8, num_beams=beams), generated(wide(), num_beams=beams)
    assert found.peak == pytest.approx(real, rel=0.02)
    one = plan(wide()).generation(new_tokens=8)
    assert found.bytes_per_token == beams * one.bytes_per_token
    assert f"processed in {beams} beams" in str(found)
