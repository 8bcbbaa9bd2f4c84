"""Pinned memory is filled again when nothing reads it any more: after a wait, in another half of it, or never copied later."""

import torch

model = torch.nn.Linear(64, 8).to("cuda")
staging, copied = torch.empty(2, 256, 64, pin_memory=True), torch.cuda.Event()
for turn in range(3):
    half = staging[turn % 2]
    half.copy_(torch.rand(256, 64))
    x = half.to("cuda", non_blocking=True)
    copied.record()
    staging[1 - turn % 2] = 0
    model(x).sum().backward()
    if turn or not copied.query():
        copied.synchronize()

for turn in range(3):
    staging[0].normal_()
    loss = model(staging[0].to("cuda", non_blocking=True)).sum()
    loss.backward()
    print(loss.item())

pageable = torch.ones(1024, 1024)
on_gpu = pageable.to("cuda", non_blocking=True)
pageable.zero_()
batch = torch.ones(1024, 1024).pin_memory()
on_gpu = batch.to("cuda")
batch.zero_()
on_gpu.copy_(batch, non_blocking=True)
other = torch.ones(8).to("cuda")
batch.fill_(1)
