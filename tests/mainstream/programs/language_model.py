import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(length, length).tril())  #! unregistered-tensor: self.mask = torch.ones(length, length).tril()

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2)
        return self.out(scores.masked_fill(self.mask[: x.shape[1], : x.shape[1]] == 0, -1e9).softmax(-1) @ v)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.attention, self.head = Attention(8, 6), nn.Linear(8, 20)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)  #! wrong-device: places = torch.arange(ids.shape[1])
        return self.head(self.attention(self.tokens(ids) + self.places(places)))


model = GPT().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(2):
    ids = torch.randint(0, 20, (4, 6), device="cuda")
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
