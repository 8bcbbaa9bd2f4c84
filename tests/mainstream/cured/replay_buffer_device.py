import torch
from torch import nn


class ReplayBuffer:
    def __init__(self, device):
        self.device, self.rows = torch.device(device), [[float(i)] * 4 for i in range(8)]

    def sample(self, n):
        return torch.tensor(self.rows[:n], device=self.device)


device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Linear(4, 2).to(device)
rb = ReplayBuffer("cpu")
data = rb.sample(4)
print(net(data).shape)
