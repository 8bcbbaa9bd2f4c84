import torch
from torch import nn


class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.network(x)


device = "cuda" if torch.cuda.is_available() else "cpu"
q = Q().to(device)
target = Q()
target.load_state_dict(q.state_dict())
obs = torch.ones(3, 4).to(device)
q(obs)
with torch.no_grad():
    print(target(obs).max(1).values)
