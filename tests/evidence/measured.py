"""What others measured on real GPUs: numbers, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2.0**20

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


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        table: the letter of the source in `SOURCES`.
        workload: a name in `predictions.WORKLOADS`.
        what: `allocated`, `reserved`, `on the card`, or `allocated by a rank`, of plans of a mesh.
        least, most: the lowest and the highest measured, in the unit of `scale`.
        bound: how far the prediction may be off, as a share.
        scale: bytes of the unit.
        counts: whether what is planned is what ran; else the row says nothing of how far plans are off.
    """

    table: str
    workload: str
    what: str
    least: float
    most: float
    bound: float
    scale: float = 1e9
    counts: bool = True


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
    " PEFT, by `devwidget/planning/by_name.py`.",
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

ROWS = (
    Row("B", "GPT-2 124M, batch 2 x 16", "allocated", 2.50674, 2.50674, 0.02),
    Row("B", "GPT-2 124M, batch 2 x 16", "reserved", 2.7389, 2.8941, 0.05),
    Row("B", "ViT-B/16, batch 2", "allocated", 1.7356, 1.7383, 0.02),
    Row("B", "ViT-B/16, batch 2", "reserved", 1.9357, 1.9566, 0.05),
    Row("D", "BERT-large, batch 4 x 512", "on the card", 14_949, 14_949, 0.05, MIB),
    Row("E", "decoder 3.4B, forward of 128", "allocated", 19.498, 19.498, 0.02),
    Row("E", "decoder 3.4B, forward of 128", "reserved", 19.667, 19.667, 0.05),
    Row("E", "decoder 3.4B, forward of 512", "allocated", 43.810, 43.810, 0.02),
    Row("E", "decoder 3.4B, forward of 512", "reserved", 44.715, 44.715, 0.05),
    Row("E", "decoder 3.4B, bfloat16 forward of 512", "allocated", 39.997, 39.997, 0.02),
    Row("E", "decoder 3.4B, bfloat16 forward of 512", "reserved", 40.515, 40.515, 0.05),
    Row("E", "decoder 3.4B, step of 128", "allocated", 55.079, 55.079, 0.02),
    Row("E", "decoder 3.4B, step of 128", "reserved", 61.111, 61.111, 0.05),
    Row("E", "decoder 3.4B, step of 512", "allocated", 55.003, 55.003, 0.02),
    Row("E", "decoder 3.4B, step of 512", "reserved", 62.831, 62.831, 0.05),
    Row("F", "ViT-L/16, step", "allocated", 6.0, 6.0, 0.02),
    Row("F", "ViT-L/16, step within backward", "allocated", 4.0, 4.0, 0.02),
    Row("G", "decoder 129M, float32", "reserved", 26.18, 26.18, 0.05),
    Row("G", "decoder 129M, bfloat16", "reserved", 19.46, 19.46, 0.05),
    Row("G", "decoder 969M, float32", "reserved", 58.26, 58.26, 0.05),
    Row("G", "decoder 969M, bfloat16", "reserved", 43.48, 43.48, 0.05),
    Row("H", "BERT-base, 512 beyond 32", "reserved", 258, 258, 0.05, MIB),
    Row("M", "PowerLM-3b, 4 x 4096, full", "allocated", 35.135, 35.135, 0.01),
    Row("M", "PowerLM-3b, 4 x 4096, full", "on the card", 47_683, 47_683, 0.05, MIB),
    Row("M", "PowerLM-3b, 8 x 4096, full", "allocated", 47.059, 47.059, 0.01),
    Row("M", "PowerLM-3b, 8 x 4096, full", "on the card", 52_927, 52_927, 0.05, MIB),
    Row("M", "PowerLM-3b, 4 x 4096, LoRA", "allocated", 20.170, 20.170, 0.01),
    Row("M", "PowerLM-3b, 4 x 4096, LoRA", "on the card", 24_591, 24_591, 0.05, MIB),
    Row("M", "PowerLM-3b, 8 x 4096, LoRA", "allocated", 33.153, 33.153, 0.01),
    Row("M", "PowerLM-3b, 8 x 4096, LoRA", "on the card", 41_237, 41_237, 0.05, MIB),
    Row("M", "Mistral-7B, 4 x 4096, full", "allocated", 72.435, 72.435, 0.01),
    Row("M", "Mistral-7B, 4 x 4096, full", "on the card", 76_045, 76_045, 0.05, MIB),
    Row("M", "Mistral-7B, 8 x 4096, full", "allocated", 72.435, 72.435, 0.01),
    Row("M", "Mistral-7B, 8 x 4096, full", "on the card", 72_725, 72_725, 0.1, MIB),
    Row("M", "Mistral-7B, 4 x 4096, LoRA", "allocated", 25.654, 25.654, 0.01),
    Row("M", "Mistral-7B, 4 x 4096, LoRA", "on the card", 28_071, 28_071, 0.05, MIB),
    Row("M", "Mistral-7B, 8 x 4096, LoRA", "allocated", 36.644, 36.644, 0.01),
    Row("M", "Mistral-7B, 8 x 4096, LoRA", "on the card", 41_407, 41_407, 0.05, MIB),
    Row("M", "Mistral-7B, 4 x 4096, LoRA, transformers 4.48", "allocated", 26.705, 26.705, 0.01),
    Row("M", "Mistral-7B, 8 x 4096, LoRA, transformers 4.48", "allocated", 38.743, 38.743, 0.01),
    Row("N", "BERT-large, 4 batches of 1 accumulated", "on the card", 8_681, 8_681, 0.01, MIB),
    Row("N", "BERT-large, accumulated, checkpointing", "on the card", 6_775, 6_775, 0.01, MIB),
    Row("N", "BERT-large, batch 4, fp16", "on the card", 13_939, 13_939, 0.06, MIB),
    Row("N", "BERT-large, accumulated, checkpointing, fp16", "on the card", 7_275, 7_275, 0.01, MIB),
    Row("N", "BERT-large, batch 4, Adafactor", "on the card", 12_295, 12_295, 0.01, MIB),
    Row("N", "BERT-large, accumulated, checkpointing, fp16, Adafactor", "on the card", 4_847, 4_847, 0.01, MIB),
    Row("N", "BERT-large, batch 4, 8-bit Adam", "on the card", 13_085, 13_085, 0.01, MIB),
    Row("N", "BERT-large, accumulated, checkpointing, fp16, 8-bit Adam", "on the card", 5_363, 5_363, 0.01, MIB),
    Row("O", "ViT-H/14, batch 8, 8-bit AdamW", "allocated", 8.31, 8.31, 0.01),
    Row("O", "ViT-H/14, batch 8, AdamW", "allocated", 12.94, 12.94, 0.01),
    Row("P", "OctoCoder, 60 tokens", "allocated", 29.0261, 29.0261, 0.01, 2.0**30),
    Row("Q", "XLM-RoBERTa, 16 x 384", "allocated", 12.727, 12.727, 0.01),
    Row("S", "PowerLM-3b, 2 GPUs, 2 x 4096, full", "allocated by a rank", 35.199, 35.199, 0.01),
    Row("S", "PowerLM-3b, 2 GPUs, 4 x 4096, full", "allocated by a rank", 35.169, 35.169, 0.01),
    Row("S", "PowerLM-3b, 2 GPUs, 2 x 4096, LoRA", "allocated by a rank", 10.323, 10.323, 0.02),
    Row("S", "PowerLM-3b, 2 GPUs, 4 x 4096, LoRA", "allocated by a rank", 16.836, 16.836, 0.01),
    Row("S", "Mistral-7B, 2 GPUs, 2 x 4096, full", "allocated by a rank", 36.226, 36.226, 0.01),
    Row("S", "Mistral-7B, 2 GPUs, 4 x 4096, full", "allocated by a rank", 36.226, 36.226, 0.01),
    Row("S", "Mistral-7B, 2 GPUs, 2 x 4096, LoRA", "allocated by a rank", 15.246, 15.246, 0.1),
    Row("S", "Mistral-7B, 2 GPUs, 4 x 4096, LoRA", "allocated by a rank", 22.161, 22.161, 0.13),
    Row("T", "20 layers of 2000, DDP over 2, before the step", "allocated by a rank", 992, 993, 0.01, 1e6),
    Row("T", "20 layers of 2000, DDP over 2, Adam", "allocated by a rank", 1697, 1698, 0.01, 1e6),
    Row("T", "20 layers of 2000, DDP over 2, Adam in ZeRO", "allocated by a rank", 1361, 1362, 0.01, 1e6),
    Row("X", "Llama-3.1-8B, FSDP2 over 8, 2 x 8192", "reserved", 82.4, 82.4, 0.05, 2.0**30),
    Row("X", "Llama-3.1-8B, FSDP2 over 128, 2 x 8192", "reserved", 67.0, 67.0, 0.05, 2.0**30),
    Row("U", "LLaMA-7B, 1000 tokens and 200 more", "allocated", 14.776, 14.776, 0.01),
    Row("U", "LLaMA-7B, the same with a static cache", "allocated", 14.250, 14.250, 0.01),
    Row("V", "Llama-2-13B, 2 texts of 512 beyond 1, reading them", "allocated", 524.83, 524.83, 0.05, 1e6),
    Row("V", "Llama-2-13B, 4 texts of 512 beyond 1, reading them", "allocated", 1574.47, 1574.47, 0.05, 1e6),
    Row("V", "Llama-2-13B, 16 texts of 512 beyond 1, reading them", "allocated", 7872.34, 7872.34, 0.05, 1e6),
    Row("V", "Llama-2-13B, 2 texts beyond 1, writing 512 more", "allocated", 1678.11, 1678.11, 0.01, 1e6),
    Row("V", "Llama-2-13B, 4 texts beyond 1, writing 512 more", "allocated", 5034.24, 5034.24, 0.01, 1e6),
    Row("V", "Llama-2-13B, 8 texts beyond 1, writing 512 more", "allocated", 11174.64, 11174.64, 0.06, 1e6),
    Row("V", "Llama-2-13B, 16 texts beyond 1, writing 512 more", "allocated", 24833.53, 24833.53, 0.02, 1e6),
    Row("R", "BERT-base, 32 x 128", "allocated", 4.037, 4.037, 0.02),
    Row("R", "BERT-base, 32 x 128", "reserved", 4.347, 4.347, 0.05),
    Row("R", "BERT-large, 16 x 384, gradients set to zero", "allocated", 15.630, 15.630, 0.02),
    Row("R", "BERT-large, 16 x 384, gradients set to zero", "reserved", 15.817, 15.817, 0.05),
    Row("R", "BERT-large, 8 x 512, float16 and GradScaler", "allocated", 9.080, 9.080, 0.02),
    Row("R", "BERT-large, 8 x 512, float16 and GradScaler", "reserved", 9.381, 9.381, 0.05),
    Row("R", "GPT-2 124M, 4 batches of 2 x 512", "allocated", 4.064, 4.064, 0.02),
    Row("R", "GPT-2 124M, 4 batches of 2 x 512", "reserved", 4.324, 4.324, 0.05),
    Row("R", "GPT-2 124M, 8 x 512", "allocated", 9.515, 9.515, 0.02),
    Row("R", "GPT-2 124M, 8 x 512", "reserved", 10.203, 10.203, 0.05),
    Row("R", "GPT-2 124M, 8 x 512, SGD with momentum", "allocated", 9.008, 9.008, 0.02),
    Row("R", "GPT-2 124M, 8 x 512, SGD with momentum", "reserved", 9.378, 9.378, 0.05),
    Row("R", "GPT-2 124M, 8 x 512, bfloat16 under autocast", "allocated", 8.132, 8.132, 0.02),
    Row("R", "GPT-2 124M, 8 x 512, bfloat16 under autocast", "reserved", 8.907, 8.907, 0.05),
    Row("R", "GPT-2 124M, 8 x 512, checkpointing", "allocated", 5.046, 5.046, 0.02),
    Row("R", "GPT-2 124M, 8 x 512, checkpointing", "reserved", 5.992, 5.992, 0.05),
    Row("R", "GPT-2 124M, 8 x 512, plain loop", "allocated", 9.515, 9.515, 0.02),
    Row("R", "GPT-2 124M, 8 x 512, plain loop", "reserved", 10.203, 10.203, 0.05),
    Row("R", "GPT-2 124M, 8 x 64 and 192 more by 4 beams", "allocated", 1.176, 1.176, 0.02),
    Row("R", "GPT-2 124M, 8 x 64 and 448 more", "allocated", 0.850, 0.850, 0.02),
    Row("R", "GPT-2 355M, 4 x 1024, bfloat16 under autocast", "allocated", 17.014, 17.014, 0.02),
    Row("R", "GPT-2 355M, 4 x 1024, bfloat16 under autocast", "reserved", 17.155, 17.155, 0.05),
    Row("R", "Llama 1.1B with LoRA of rank 16, bfloat16, 4 x 1024", "allocated", 9.856, 9.856, 0.02),
    Row("R", "Llama 1.1B with LoRA of rank 16, bfloat16, 4 x 1024", "reserved", 10.681, 10.681, 0.05),
    Row("R", "Llama 1.1B with LoRA of rank 16, float32 under autocast, 2 x 1024", "allocated", 10.623, 10.623, 0.02),
    Row("R", "Llama 1.1B with LoRA of rank 16, float32 under autocast, 2 x 1024", "reserved", 11.052, 11.052, 0.05),
    Row("R", "Llama 1.1B with LoRA of rank 64 everywhere, bfloat16, 4 x 1024", "allocated", 11.606, 11.606, 0.02),
    Row("R", "Llama 1.1B with LoRA of rank 64 everywhere, bfloat16, 4 x 1024", "reserved", 12.562, 12.562, 0.05),
    Row("R", "Llama 1.1B, bfloat16, 4 x 2048", "allocated", 26.185, 26.185, 0.02),
    Row("R", "Llama 1.1B, bfloat16, 4 x 2048", "reserved", 28.582, 28.582, 0.05),
    Row("R", "Llama 1.1B, bfloat16, 4 x 2048, checkpointing", "allocated", 11.599, 11.599, 0.02),
    Row("R", "Llama 1.1B, bfloat16, 4 x 2048, checkpointing", "reserved", 15.066, 15.066, 0.08),
    Row("R", "Llama 1.1B, bfloat16, 4 x 512 and 64 more by 3 beams", "allocated", 2.684, 2.684, 0.02),
    Row("R", "Llama 1.1B, bfloat16, 8 x 512 and 128 more", "allocated", 2.534, 2.534, 0.02),
    Row("R", "Llama 1.1B, bfloat16, forward of 8 x 2048", "allocated", 3.720, 3.720, 0.02),
    Row("R", "Llama 1.1B, bfloat16, forward of 8 x 2048", "reserved", 4.861, 4.861, 0.05),
    Row("R", "Qwen2 0.5B, bfloat16 under autocast, 4 x 1024", "allocated", 22.406, 22.406, 0.02),
    Row("R", "Qwen2 0.5B, bfloat16 under autocast, 4 x 1024", "reserved", 24.178, 24.178, 0.05),
    Row("R", "Qwen2 0.5B, bfloat16, 32 x 512 and 64 more", "allocated", 1.832, 1.832, 0.02),
    Row("R", "Qwen2 0.5B, bfloat16, 8 x 512 and 64 more by 2 beams", "allocated", 1.432, 1.432, 0.02),
    Row("R", "Qwen2 0.5B, bfloat16, forward of 16 x 1024", "allocated", 6.240, 6.240, 0.02),
    Row("R", "Qwen2 0.5B, bfloat16, forward of 16 x 1024", "reserved", 6.939, 6.939, 0.05),
    Row("R", "ResNet-50, 64", "allocated", 5.853, 5.853, 0.02),
    Row("R", "ResNet-50, 64", "reserved", 7.019, 7.019, 0.08),
    Row("R", "ResNet-50, 64, bfloat16 under autocast", "allocated", 3.213, 3.213, 0.02),
    Row("R", "ResNet-50, 64, bfloat16 under autocast", "reserved", 3.811, 3.811, 0.08),
    Row("R", "T5, 60M, 8 x 256", "allocated", 3.526, 3.526, 0.02),
    Row("R", "T5, 60M, 8 x 256", "reserved", 3.829, 3.829, 0.05),
    Row("R", "ViT-B/16, 64", "allocated", 8.884, 8.884, 0.02),
    Row("R", "ViT-B/16, 64", "reserved", 9.183, 9.183, 0.05),
    Row("R", "ViT-B/16, 64, bfloat16 under autocast", "allocated", 6.239, 6.239, 0.02),
    Row("R", "ViT-B/16, 64, bfloat16 under autocast", "reserved", 6.650, 6.650, 0.05),
)

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
    " more is predicted, for other models, in tests/test_plan.py.",
}
