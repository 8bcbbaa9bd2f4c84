import torch
from torch import nn


def attend(q, k):
    if q.device != k.device:
        raise ValueError(f"q on {q.device}, k on {k.device}")
    return q @ k.T


device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Linear(4, 4).to(device)
q = net(torch.ones(2, 4, device=device))
k = torch.randn(3, 4)
print(attend(q, k).shape)
