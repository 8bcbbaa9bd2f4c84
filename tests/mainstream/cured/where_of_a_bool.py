import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("length", torch.ones(1))
        self.mode = "exact"

    def forward(self, x):
        h = self.lin(x)
        pos = self.length[0].item() if self.mode == "exact" else self.length[0]
        return h * pos


device = "cuda" if torch.cuda.is_available() else "cpu"
print(Net().to(device)(torch.ones(2, 4, device=device)).shape)
