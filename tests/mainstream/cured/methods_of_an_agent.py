"""The agent has no `forward`: its networks are called one by one, and all of them were left behind."""
import torch
from torch import nn


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        self.actor = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))

    def value_of(self, x):
        return self.critic(x)

    def act(self, x):
        logits = self.actor(x)
        return logits.argmax(-1), self.critic(x)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
agent = Agent()
observed = torch.zeros(2, 4, device=device)
for step in range(2):
    action, value = agent.act(observed)
print(agent.value_of(observed).shape)
