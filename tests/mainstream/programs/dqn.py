import random

import torch
from torch import nn

device = torch.device("cuda")
policy, target = (nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(device) for _ in range(2))
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.Adam(policy.parameters())
replay = [(torch.rand(4), random.randrange(2), random.random(), torch.rand(4)) for _ in range(64)]  #^
for _ in range(3):
    states, actions, rewards, following = zip(*random.sample(replay, 16))
    states = torch.stack(states).to(device)  #! wrong-device: states = torch.stack(states)
    actions = torch.tensor(actions, device=device)
    rewards = torch.tensor(rewards, device=device)  #! wrong-device: rewards = torch.tensor(rewards)
    following = torch.stack(following).to(device)
    with torch.no_grad():
        wanted = rewards + 0.99 * target(following).max(1).values
    chosen = policy(states).gather(1, actions[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(chosen, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
