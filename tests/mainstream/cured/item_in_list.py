import numpy as np, torch
from torch import nn


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Linear(4, 2)

    def ratio(self, x):
        return self.actor(x).exp()


device = "cuda" if torch.cuda.is_available() else "cpu"
agent = Agent().to(device)
opt = torch.optim.SGD(agent.parameters(), 0.1)
x, clipfracs = torch.randn(8, 4, device=device), []
for _ in range(4):
    ratio = agent.ratio(x)
    with torch.no_grad():
        clipfracs += [((ratio - 1.0).abs() > 0.2).float().mean().item()]
    opt.zero_grad()
    ratio.mean().backward()
    opt.step()
print("clipfrac", np.mean(clipfracs))
