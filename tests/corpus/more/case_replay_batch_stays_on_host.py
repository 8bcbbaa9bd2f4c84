"""A replay buffer stacks its transitions on the host, and only the states are moved."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


import random
from collections import deque, namedtuple

Transition = namedtuple('Transition', 'state action reward following')


class Replay:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, count):
        batch = Transition(*zip(*random.Random(0).sample(list(self.memory), count)))
        return (torch.stack(batch.state), torch.tensor(batch.action), torch.tensor(batch.reward),  # BIRTH
                torch.stack(batch.following))


class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, states):
        return self.net(states)


def build():
    device = torch.device('cuda')
    online, target_net = Q().to(device), Q().to(device)
    target_net.load_state_dict(online.state_dict())
    replay = Replay(32)
    for _ in range(8):
        replay.push(torch.randn(4), 1, 0.5, torch.randn(4))
    states, actions, rewards, following = replay.sample(4)
    states, following = states.to(device), following.to(device)
    actions = actions.to(device)

    def td_loss(q, _):
        with torch.no_grad():
            best = target_net(following).max(1).values
        wanted = rewards + 0.99 * best  # FAULT
        return F.smooth_l1_loss(q.gather(1, actions[:, None]).squeeze(1), wanted)

    return dict(model=online, args=(states,), loss_fn=td_loss, optimizer=torch.optim.Adam(online.parameters()))


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['rewards.to(', '.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
