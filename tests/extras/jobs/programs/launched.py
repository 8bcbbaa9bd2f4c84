"""A script as accelerate's examples are: gradients are accumulated and clipped, metrics gathered, the state saved."""

import argparse
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--cpu", action="store_true")
parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
given = parser.parse_args()

accelerator = Accelerator(cpu=given.cpu, gradient_accumulation_steps=given.gradient_accumulation_steps)
set_seed(3)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
data = TensorDataset(torch.sin(torch.arange(260.0)).view(65, 4), torch.arange(65) % 3)
loader, held_out = DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=5)
model, optimizer, loader, held_out, scheduler = accelerator.prepare(model, optimizer, loader, held_out, scheduler)

for _ in range(2):
    model.train()
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.print("loss", accelerator.clip_grad_norm_(model.parameters(), 1.0).item(), "norm")
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        accelerator.print("loss", accelerator.reduce(loss.detach(), "mean").item())
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for inputs, targets in held_out:
            found, expected = accelerator.gather_for_metrics((model(inputs).argmax(-1), targets))
            right, seen = right + int((found == expected).sum()), seen + len(expected)
    accelerator.print("loss", right, "right of", seen)
with tempfile.TemporaryDirectory() as folder:
    (common,) = broadcast_object_list([folder])
    accelerator.save_state(common)
    accelerator.wait_for_everyone()
    accelerator.load_state(common)
    accelerator.wait_for_everyone()
accelerator.print("device", accelerator.device, accelerator.num_processes, accelerator.distributed_type)
accelerator.end_training()
