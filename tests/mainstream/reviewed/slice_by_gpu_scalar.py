import sys, torch
from torch import nn


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("k", torch.zeros(1, 16, 4))
        self.register_buffer("length", torch.zeros(1, dtype=torch.int32))

    def forward(self, x):
        h = self.lin(x)
        pos = self.length[0].item() if "item" in sys.argv else self.length[0]
        self.k[:, pos : pos + 1] = h  # 2 waits
        self.length += 1
        return self.k[:, : pos + 1].sum()  # one more


device = "cuda" if torch.cuda.is_available() else "cpu"
with torch.no_grad():
    net = Cache().to(device)
    for _ in range(5):
        net(torch.ones(1, 1, 4, device=device))
print(net.length.tolist())
