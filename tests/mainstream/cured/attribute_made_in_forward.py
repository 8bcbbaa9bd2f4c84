import torch
from torch import nn


class Detect(nn.Module):
    def __init__(self):
        super().__init__()
        self.cv = nn.Linear(4, 2)
        self.shape, self.anchors = None, torch.empty(0)

    def forward(self, x):
        y = self.cv(x)
        if self.shape != y.shape:
            grid = torch.arange(y.shape[0], dtype=y.dtype)
            self.anchors, self.shape = torch.stack((grid, grid), 1), y.shape
        return y + self.anchors


device = "cuda" if torch.cuda.is_available() else "cpu"
print(Detect().to(device)(torch.ones(3, 4, device=device)).shape)
