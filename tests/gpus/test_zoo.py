"""Real models give on a virtual GPU, bit for bit, the numbers of the CPU."""

import copy
import random
import warnings

import numpy
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from devwidget.gpus import simulate
from tests import zoo

FEW = ["gpt2", "llama", "mixtral", "mamba", "bert", "t5", "vit", "resnet", "whisper", "clip"]
# Their outputs on a part of the batch are no part of their outputs on all of it, or they fail in the threads of replicas
# as they do on CUDA. Each reason was checked against what the model's code does.
NOT_PARALLEL = {
    "clip": "similarities of all pairs in the batch",
    "siglip": "similarities of all pairs in the batch",
    "blip": "similarities of all pairs in the batch",
    "owlvit": "similarities of all pairs in the batch",
    "clap": "similarities of all pairs in the batch",
    "encodec": "its codes have the batch in the second place, gather joins the first",
    "vits": "waves of different lengths per replica cannot be gathered; noise is drawn per replica",
    "xlnet": "reads next(self.parameters()), which replicas do not have",
    "lxmert": "reads next(self.parameters()), which replicas do not have",
    "qwen2_vl": "reads next(self.parameters()), which replicas do not have",
    "upernet": "keeps modules in a plain list, which stay on the first GPU",
    "rwkv": "changes its views in place, which autograd refuses for what broadcast returned",
    "reformer": "needs train() for its backward",
    "time_series_transformer": "its output is empty without a loss",
    "segformer": "transformers patches forward methods while it runs, which threads disturb",
    "switch_transformers": "its router computes in float32, where the order of adding shows at eight GPUs",
    "llava": "transformers patches forward methods while it runs, which threads disturb",
}


def tensors(value):
    leaves = tree_leaves(dict(value) if hasattr(value, "keys") else value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def seeded(model, args, kwargs, *, backward=True):
    """Outputs and gradients of one step."""
    torch.manual_seed(1)
    numpy.random.seed(1)
    random.seed(1)
    out = model(*args, **kwargs)
    roots = [t for t in tensors(out) if t.requires_grad]
    if roots and backward:
        sum((t.abs() if t.is_complex() else t).float().sum() for t in roots).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return [t.detach() for t in tensors(out)], gradients


def same(left, right):
    if left.layout != torch.strided:
        left, right = left.to_dense(), right.to_dense()
    equal = torch.equal(left, right) or torch.allclose(left, right, rtol=0, atol=0, equal_nan=True)
    return left.dtype == right.dtype and equal


def differences(model, args, kwargs):
    """What differs between the CPU and a virtual GPU; models that do not repeat themselves need only run."""
    outputs, gradients = seeded(*copy.deepcopy((model, args, kwargs)))
    again, gradients_again = seeded(*copy.deepcopy((model, args, kwargs)))
    repeats = all(map(same, outputs, again)) and all(same(gradients[n], gradients_again[n]) for n in gradients)
    with simulate(2):
        twin = copy.deepcopy(model).to("cuda:0")
        moved = tree_map_only(torch.Tensor, lambda t: t.to("cuda:0"), copy.deepcopy((args, kwargs)))
        there, gradients_there = seeded(twin, *moved)
        elsewhere = {str(t.device) for t in [*there, *gradients_there.values()]} - {"cuda:0"}
        there, gradients_there = [t.cpu() for t in there], {n: g.cpu() for n, g in gradients_there.items()}
    if elsewhere:
        return f"on {elsewhere}"
    if not repeats:
        return ""
    if len(there) != len(outputs) or not all(map(same, outputs, there)):
        return "outputs differ"
    if gradients.keys() != gradients_there.keys() or not all(same(gradients[n], gradients_there[n]) for n in gradients):
        return "gradients differ"
    return ""


def sweep(population):
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, args, kwargs in population:
            if problem := differences(model, args, kwargs):
                found[name] = problem
    return found


def test_a_few_transformers_equal_the_cpu_bit_for_bit():
    assert sweep(zoo.iter_core(names=FEW, training=True)) == {}


@pytest.mark.slow
def test_all_other_transformers_equal_the_cpu_bit_for_bit():
    assert sweep(zoo.iter_core(names=zoo.CORE.keys() - FEW, training=True)) == {}


@pytest.mark.slow
def test_all_modules_of_torch_equal_the_cpu_bit_for_bit():
    assert sweep(zoo.iter_torch(one_each=True, training=True)) == {}


def close(left, right):
    scale = max(1.0, left.abs().max().item()) if left.numel() else 1.0
    return left.shape == right.shape and torch.allclose(left, right, rtol=0, atol=1e-6 * scale)


def parallel_differences(model, kwargs, count):
    """What differs between one GPU and DataParallel over several, in double precision where the model allows."""
    with simulate(count):
        batch = tree_map_only(torch.Tensor, lambda t: t.repeat(count, *[1] * (t.dim() - 1)).to("cuda:0"), kwargs)
        if getattr(getattr(model, "config", None), "use_cache", None) is True and "input_ids" in batch:
            batch["use_cache"] = False
        one = model.to("cuda:0").eval()
        one.zero_grad()
        many = copy.deepcopy(one)
        alone, expected = seeded(one, (), batch)
        together, found = seeded(torch.nn.DataParallel(many), (), batch)
        if not all(map(close, alone, together)):
            return "outputs differ"
        found = {name.removeprefix("module."): gradient for name, gradient in found.items()}
        # Unused parameters have no gradient on one GPU, and one of zeros after a broadcast.
        if not all(close(expected.get(name, torch.zeros_like(found[name])), found[name]) for name in found):
            return "gradients differ"
    return ""


def parallel_sweep(count, names=None):
    """What differs for which model, and how many ran."""
    found, ran = {}, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, _, kwargs in zoo.iter_core(names=names):
            if name.rsplit(".", 1)[1] in NOT_PARALLEL:
                continue
            ran += 1
            try:
                double = model.double()
                wide = tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, kwargs)
                problem = parallel_differences(double, wide, count)
            except RuntimeError as error:
                if "Float" not in str(error) and "float" not in str(error):
                    raise
                problem = parallel_differences(model.float(), kwargs, count)
            if problem:
                found[name] = problem
    return found, ran


@pytest.mark.parametrize("count", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (3, 8))])
def test_data_parallel_equals_one_gpu_for_a_few_transformers(count):
    assert parallel_sweep(count, [name for name in FEW if name not in NOT_PARALLEL]) == ({}, 9)


@pytest.mark.fuzz
@pytest.mark.parametrize("count", [2, 3, 8])
def test_data_parallel_equals_one_gpu_for_all_transformers_that_allow_it(count):
    found, ran = parallel_sweep(count)
    print(f"DataParallel over {count} GPUs: {ran} transformers, {len(found)} differ from one GPU")
    assert found == {}
    assert ran > 60


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_is_loaded_over_gpus_and_the_cpu(tmp_path):
    transformers = pytest.importorskip("transformers")
    accelerate = pytest.importorskip("accelerate")
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_key_value_heads=2)).eval()
    ids = torch.randint(0, 64, (1, 6))
    expected = model(ids).logits
    model.save_pretrained(tmp_path)
    ends = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.norm": 1, "lm_head": 1}
    layers = {f"model.layers.{number}": place for number, place in enumerate([0, "cpu", 1, "cuda:1"])}
    with simulate(2):
        for places in ("auto", ends | layers):
            spread = transformers.LlamaForCausalLM.from_pretrained(tmp_path, device_map=places)
            assert torch.equal(spread(ids.cuda()).logits.cpu(), expected)
        offloaded = accelerate.cpu_offload(copy.deepcopy(model), execution_device=0)
        assert torch.equal(offloaded(ids.cuda()).logits.cpu(), expected)
