import torch
from torch import nn


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(8, 4)
        self.cos = torch.ones(16, 4)

    def forward(self, idx):
        assert idx.device == self.cos.device, (
            f"Rotary embeddings and idx are on different devices: {idx.device} != {self.cos.device}"
        )
        return self.wte(idx) * self.cos[: idx.size(1)]


device = "cuda" if torch.cuda.is_available() else "cpu"
print(GPT().to(device)(torch.ones(2, 5, dtype=torch.long, device=device)).shape)
