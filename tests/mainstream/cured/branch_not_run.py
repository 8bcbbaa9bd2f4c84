import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Linear(4, 1).to(device)
steps = 4
values = net(torch.ones(steps, 4, device=device)).detach().flatten()
rewards, dones = torch.ones(steps).to(device), torch.zeros(steps).to(device)
next_value, next_done = values[-1].reshape(1), torch.Tensor([0.0])
for t in reversed(range(steps)):
    if t == steps - 1:
        nonterminal = 1.0 - next_done
        nextvalues = next_value
    else:
        nonterminal = 1.0 - dones[t + 1]
        nextvalues = values[t + 1].reshape(1)
    delta = rewards[t] + 0.99 * nextvalues * nonterminal - values[t]
print(delta.shape)
