"""Pinned memory is filled again while copies to the GPU may still read it: no line of the loop waits."""

import torch

model = torch.nn.Linear(64, 8).to("cuda")
staging = torch.empty(256, 64, pin_memory=True)
for _ in range(3):
    staging.copy_(torch.rand(256, 64))
    x = staging.to("cuda", non_blocking=True)
    model(x).sum().backward()

batch = torch.ones(1024, 1024, pin_memory=True)
on_gpu = batch.to("cuda", non_blocking=True)
batch[10:20] = 0

sent = torch.empty(1024, 1024, device="cuda")
sent.copy_(batch, non_blocking=True)
batch.zero_()
