import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.register_buffer("gain", torch.tensor([2.0]))  #! unregistered-tensor: self.gain = torch.tensor([2.0])

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T * self.gain


model = nn.Sequential(LoRA(nn.Linear(6, 8)), nn.ReLU(), LoRA(nn.Linear(8, 2))).to("cuda")
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01)
for _ in range(2):
    x = torch.rand(5, 6, device="cuda")  #! wrong-device: x = torch.rand(5, 6)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
