"""What a cell of a notebook does with accelerate's `notebook_launcher`: ranks are forks, and each makes an Accelerator."""

import os
import socket

import torch
from accelerate import Accelerator, debug_launcher, notebook_launcher
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(lr):
    accelerator = Accelerator()
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    data = TensorDataset(torch.sin(torch.arange(64.0)).view(16, 4), torch.cos(torch.arange(32.0)).view(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=2))
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        mean = accelerator.gather(loss.detach()).mean()
        if accelerator.is_main_process:
            print("loss", mean.item(), flush=True)
    if accelerator.is_main_process:
        print("devices", accelerator.device, accelerator.num_processes, accelerator.distributed_type, flush=True)
    accelerator.end_training()


ranks = int(os.environ["RANKS"])
if torch.cuda.is_available():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    notebook_launcher(train, args=(0.01,), num_processes=ranks, use_port=str(port))
else:
    debug_launcher(train, args=(0.01,), num_processes=ranks)
