"""What others measured on real GPUs: numbers, and where they stand."""

from __future__ import annotations

from devwidget.extras.plan.evidence.compared import Compared, list_compared

MIB, GIB = 2.0**20, 2.0**30

ATTENTION = {
    (16, 256): 19_660_800,
    (16, 1024): 52_690_944,
    (16, 4096): 562_298_880,
    (16, 8192): 2_181_300_224,
    (32, 256): 20_185_088,
    (32, 1024): 54_788_096,
    (32, 4096): 570_687_488,
    (32, 8192): 2_198_077_440,
    (64, 256): 21_233_664,
    (64, 1024): 58_982_400,
    (64, 4096): 587_464_704,
    (64, 8192): 2_231_631_872,
    (128, 256): 23_330_816,
    (128, 1024): 67_371_008,
    (128, 4096): 621_019_136,
    (128, 8192): 2_298_740_736,
}
"""Width and length -> `torch.cuda.memory_allocated()` between forward and backward of one head of attention, batch 8, float32.

Source: MAGMA27/assignment2-systems, `attention_benchmark_results.csv`. At length 16,384 the card was out of memory.
"""


ROWS = list_compared()
"""The figures of others, in bytes, beside their plans: a new one is written into `devwidget/extras/plan/evidence/rows.csv`."""
SCALES = {"H": MIB, "P": GIB, "T": 1e6, "V": 1e6, "X": GIB}
"""Bytes of the unit of a source, where it is not 1e9; what is taken of a card is told in MiB."""
BOUNDS = {"allocated": 0.02, "reserved": 0.05, "on the card": 0.05, "allocated by a rank": 0.01}
"""How far a prediction may be off, as a share."""
CLOSE_SOURCES = "MNOPQU"
"""What these say of allocated bytes, and N of the card, is predicted within 1 %."""
WIDER = {
    ("Mistral-7B, 8 x 4096, full", "on the card"): 0.1,
    ("BERT-large, batch 4, fp16", "on the card"): 0.06,
    ("PowerLM-3b, 2 GPUs, 2 x 4096, LoRA", "allocated by a rank"): 0.02,
    ("Mistral-7B, 2 GPUs, 2 x 4096, LoRA", "allocated by a rank"): 0.1,
    ("Mistral-7B, 2 GPUs, 4 x 4096, LoRA", "allocated by a rank"): 0.13,
    **{(f"Llama-2-13B, {texts} texts of 512 beyond 1, reading them", "allocated"): 0.05 for texts in (2, 4, 16)},
    **{(f"Llama-2-13B, {texts} texts beyond 1, writing 512 more", "allocated"): 0.01 for texts in (2, 4)},
    ("Llama-2-13B, 8 texts beyond 1, writing 512 more", "allocated"): 0.06,
    ("Llama 1.1B, bfloat16, 4 x 2048, checkpointing", "reserved"): 0.08,
    ("ResNet-50, 64", "reserved"): 0.08,
    ("ResNet-50, 64, bfloat16 under autocast", "reserved"): 0.08,
}
"""Other bounds of single figures; `SOURCES` has the reasons."""


def scale_of(row: Compared) -> float:
    """Bytes of the unit in which a figure is told."""
    return MIB if row.what == "on the card" else SCALES.get(row.source, 1e9)


def bound_of(row: Compared) -> float:
    """How far its prediction may be off."""
    is_close = row.source == "N" or (row.source in CLOSE_SOURCES and row.what == "allocated")
    return WIDER.get((row.workload, row.what), 0.01 if is_close else BOUNDS[row.what])


SOURCES = {
    "B": "GPT-2 and ViT-B/16, float32, AdamW, transformers' Trainer, second step. Measured: optimum-benchmark's reports, on"
    " ROCm and on CUDA, whose reserved figures differ.",
    "D": "BERT-large, 4 x 512, float32, transformers' own AdamW of 2022, gradients set to zero and kept. Measured:"
    " transformers, model_memory_anatomy, nvidia-smi of a V100 with 16 GB.",
    "E": "A decoder of 3.4 billion parameters, batch 4, one forward, and one first step with an AdamW by hand. Measured:"
    " kkaitlyn111/cs336-a2-systems, snapshots of memory_files, torch 2.6, H100. Before it, an earlier model of the same process"
    " had left up to 0.14 GB there.",
    "F": "ViT-L/16, one image, Adam, and Adam's step within backward. Measured: PyTorch's tutorial optimizer_step_in_backward,"
    " which says `about 6 GB` and `about 4 GB`.",
    "G": "Decoders of the course CS336, forward and backward, float32 and bfloat16 under autocast. Measured: a student's"
    " write-up, A100-80GB. Its program is not published: the parts are taken from the handout, and of the two ways to write"
    " SiLU the one that explains the difference between its two sizes. Of the ways to write the loss it is the logarithm of a"
    " softmax by hand: torch's own, and one that subtracts the logarithm of the sum, take 1.97 and 1.31 GB less of the first"
    " size in float32, two and three tensors of the size of the logits.",
    "H": "BERT-base, inference, batch 8: what length 512 takes beyond length 32. Measured: transformers' benchmark of 2020,"
    " torch 1.4, TITAN RTX, nvidia-smi. Only the difference is predicted, because nobody wrote down that context; and not the"
    " 54 MiB between lengths 8 and 32, whose tensors differ by 4 MiB: the context grows when other kernels are loaded.",
    "M": "PowerLM-3b and Mistral-7B-v0.1, bfloat16, texts of 4,096 tokens, checkpointing, AdamW or LoRA of rank 16, loop of"
    " Trainer. Measured: fms-acceleration of IBM, A100-80GB, torch 2.4.1, `scripts/benchmarks/refs/a100_80gb_granite.csv` and"
    " `a100_80gb.csv` (https://github.com/foundation-model-stack/fms-acceleration), transformers 4.45.2 and, where it is said,"
    " 4.48.1; planned with the models of the one that is installed, and the loss of these: it copies the logits of all tokens"
    " but the last, and 4.48 keeps those of the head in bfloat16 beside them. What is off: on the card Mistral-7B with 8 texts"
    " was read 3.3 GB lower than with 4, where the same was allocated: nvidia-smi was asked now and then. LoRA is without"
    " PEFT, by `devwidget/extras/plan/by_name.py`.",
    "N": "BERT-large, texts of 512, gradients set to zero and kept, loop of Trainer, 4 batches of 1 where they are accumulated."
    " Measured: transformers' guide perf_train_gpu_one of 2022"
    " (https://huggingface.co/docs/transformers/v4.21.0/perf_train_gpu_one), V100-16GB, nvidia-smi. torch before 1.11,"
    " whose softmax kept what went in. What is off: fp16"
    " with batch 4, by 18 MiB for each layer; which tensor is not found.",
    "O": "ViT-H/14 for 45 classes, batch 8, bfloat16 under autocast. Measured: torchao,"
    " https://github.com/pytorch/ao/blob/03cf0ade/torchao/prototype/low_bit_optim/README.md, 4070 Ti SUPER,"
    " `max_memory_allocated`. The model is timm's, written once more; AdamW is taken to step for all parameters together:"
    " fused, as the script of that commit asks, it would take 12.23.",
    "P": "OctoCoder, 15.5 billion parameters in bfloat16, inference. Measured: transformers' llm_tutorial_optimization"
    " (https://huggingface.co/docs/transformers/llm_tutorial_optimization), `max_memory_allocated`; its prompt is taken to"
    " have 18 tokens.",
    "Q": "XLM-RoBERTa base on SQuAD, 16 x 384, loop of Trainer of 2021. Measured: the memory metrics of Trainer on a model"
    " card; its precision is not stated, and taken to be float32.",
    "S": "PowerLM-3b and Mistral-7B-v0.1 on two GPUs, as above with FSDP, so many texts on each. Measured: the same files, with"
    " FSDP1, a mean over both GPUs; planned with FSDP2, which keeps as much where the step of the optimizer is the peak. The"
    " files say what is still allocated after training, 28.1 GB of PowerLM: its weights were in float32, and gathered in"
    " bfloat16. What is off: LoRA of Mistral-7B, whose texts took 3.46 GB each on two GPUs and 2.75 on one; the cause is not"
    " found.",
    "T": "Twenty linear layers of 2000 x 2000 on two GPUs, 20 rows on each, Adam for one parameter after the other. Measured:"
    " PyTorch's recipe zero_redundancy_optimizer, `max_memory_allocated` in whole MB, torch of 2021: cuBLAS took its workspaces"
    " itself, and ZeroRedundancyOptimizer gave parameters to ranks in their order.",
    "U": "LLaMA-7B in float16, 1,000 tokens and 200 more. Measured:"
    " fxmarty/accelerated-pytorch-transformers-generation, README,"
    " A10G, `max_memory_allocated`: transformers of 2023, which gives logits of all positions, and keeps the keys and values"
    " before a token until those after it are whole; and its own model with a cache that is there from the start.",
    "V": "Llama-2-13B in float16: what several texts take beyond one. Measured: optimum, https://github.com/huggingface/optimum/tree/main/tests/benchmark,"
    " A100-80GB, transformers of 2023. What it calls peak memory is what is allocated and a context, which is not stated and"
    " the same for all: so that only differences are predicted; of 8 and 16 texts it is a rough estimate, as the page"
    " says.",
    "X": "Llama-3.1-8B under FSDP2 on 8 and 128 GPUs, two texts of 8,192 tokens on each, selective checkpointing by operators,"
    " not compiled. Measured: torchtitan at the end of 2024, https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md,"
    " H100 with 96 GB, `max_memory_reserved`, expandable segments. The model and the policy are torchtitan's, written once"
    " more.",
    "R": "Training as people write it, third step, one forward, and generations; models of transformers 5.17 with their usual"
    " settings. Measured: `tests/gpu` of this repository, H100-80GB, torch 2.11, `max_memory_allocated` and"
    " `max_memory_reserved`. What is off: convolutions, whose workspaces cuDNN chooses, by 79 MB of ViT and in what ResNet"
    " reserves.",
}

OUT_OF_MEMORY = ("decoder 969M, float32, two graphs",)
"""What the card of its source had no room for: a forward while the graph of the one before is still there."""

NOT_PREDICTED = {
    "J": "PEFT's README (T0_3B, bloomz-7b1, Stable Diffusion): neither batch nor length stands beside the figures.",
    "K": "libai#326, a pipeline of 4 stages: another framework, OneFlow, with an allocator of its own.",
    "W": "Pythia-410M, forward and backward (transformers' page of GPT-NeoX): the loss of its program is not"
    " published. With the"
    " sum of the logits, as optimum's benchmark has it, 15 to 22 % less is planned than was measured, with the model's own"
    " loss 11 to 16 %.",
    "L": "DataParallel on TITAN RTX, 24,207 MiB against less than 16 GB: the model is not published. That the first GPU holds"
    " more is predicted, for other models, in tests/extras/plan/test_plan.py.",
}
