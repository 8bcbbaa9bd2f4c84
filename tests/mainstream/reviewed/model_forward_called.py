import sys, torch
from torch import nn


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("length", torch.zeros(1, dtype=torch.int32))

    def forward(self, x):
        pos = self.length[0].item()
        return self.lin(x) + pos


device = "cuda" if torch.cuda.is_available() else "cpu"
net = GPT().to(device)
for _ in range(5):
    (net if "call" in sys.argv else net.forward)(torch.ones(1, 4, device=device))
