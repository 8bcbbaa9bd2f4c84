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
        what: `allocated`, `reserved` or `on the card`.
        least, most: the lowest and the highest measured, in the unit of `scale`.
        bound: how far the prediction may be off, as a share.
        scale: bytes of the unit.
    """

    table: str
    workload: str
    what: str
    least: float
    most: float
    bound: float
    scale: float = 1e9


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
)

OUT_OF_MEMORY = ("decoder 969M, float32, two graphs",)
"""What the card of its source had no room for: a forward while the graph of the one before is still there."""

NOT_PREDICTED = {
    "I": "Llama-3.1-8B under FSDP2 on 8 H100 (torchtitan): 82.4 GiB each. Plans of FSDP2 are held against PyTorch's formulas"
    " and the real FSDP2, not yet against this figure.",
    "J": "PEFT's README (T0_3B, bloomz-7b1, Stable Diffusion): neither batch nor length stands beside the figures.",
    "K": "libai#326, a pipeline of 4 stages: another framework, OneFlow, with an allocator of its own.",
    "L": "DataParallel on TITAN RTX, 24,207 MiB against less than 16 GB: the model is not published. That the first GPU holds"
    " more is predicted, for other models, in tests/test_plan.py.",
}
