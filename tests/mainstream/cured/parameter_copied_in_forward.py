import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, base.in_features) * 0.02)
        self.b = nn.Parameter(torch.zeros(base.out_features, 2, device=base.weight.device))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(4, 4)).to(device)
model[0] = LoRA(model[0])
print(model(torch.ones(2, 4, device=device)).sum())
