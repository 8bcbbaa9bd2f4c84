"""DistributedDataParallel as torchrun starts it; alone it is a job of one process."""

import os
import socket

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Encoder(nn.Module):
    def __init__(self, vocab=20, width=8, length=6):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, ids, lengths):
        places = torch.arange(ids.shape[1], device=ids.device)
        padding = places >= lengths[:, None]  #! wrong-device: padding = torch.arange(ids.shape[1]) >= lengths[:, None]
        hidden = self.layer(self.tokens(ids) + self.places(places), src_key_padding_mask=padding)
        return self.head(hidden.mean(1))


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def ddp_setup():
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}.items():
        os.environ.setdefault(name, str(value))
    dist.init_process_group("gloo")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


class Trainer:
    def __init__(self, model, loader, optimizer):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.loader, self.optimizer = loader, optimizer
        self.model = DDP(model.to(self.gpu_id), device_ids=[self.gpu_id])

    def run_batch(self, ids, lengths, targets):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(ids, lengths), targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        total = torch.zeros(1, device=self.gpu_id)  #! wrong-device: total = torch.zeros(1)
        for ids, lengths, targets in self.loader:
            total += self.run_batch(ids.to(self.gpu_id), lengths.to(self.gpu_id), targets.to(self.gpu_id))
        dist.all_reduce(total)
        if self.gpu_id == 0:
            print(f"[GPU{self.gpu_id}] epoch {epoch}: {total.item() / len(self.loader):.3f}")


def main():
    ddp_setup()
    data = TensorDataset(torch.randint(0, 20, (16, 6)), torch.randint(1, 7, (16,)), torch.randint(0, 2, (16,)))
    loader = DataLoader(data, batch_size=8, shuffle=False, sampler=DistributedSampler(data))
    model = Encoder()
    trainer = Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=1e-3))
    try:
        for epoch in range(2):
            trainer.run_epoch(epoch)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
