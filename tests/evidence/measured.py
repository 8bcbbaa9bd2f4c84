"""What others measured on real GPUs: numbers, and where they stand."""

from __future__ import annotations

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

TRAINING = {
    "GPT-2 124M, batch 2 x 16": ((2_506.74, 2_506.74), (2_738.9, 2_894.1)),
    "ViT-B/16, batch 2": ((1_735.6, 1_738.3), (1_935.7, 1_956.6)),
}
"""Workload -> lowest and highest peak of what was allocated, and of what was reserved, in MB: float32, AdamW, Trainer.

Source: optimum-benchmark's published reports, on ROCm and on CUDA.
"""
