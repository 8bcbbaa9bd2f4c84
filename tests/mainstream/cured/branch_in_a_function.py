import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


def advantage(values, rewards, dones, last, steps):
    for t in reversed(range(steps)):
        if t == steps - 1:
            alive = 1.0 - last
            following = values[-1]
        else:
            alive = 1.0 - dones[t + 1]
            following = values[t + 1]
        delta = rewards[t] + 0.99 * following * alive - values[t]
    return delta


net = nn.Linear(4, 1).to(device)
values = net(torch.ones(4, 4, device=device)).detach()
rewards, dones = torch.ones(4).to(device), torch.zeros(4).to(device)
print(advantage(values, rewards, dones, torch.Tensor([0.0]), 4).shape)
