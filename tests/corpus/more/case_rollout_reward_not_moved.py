"""Observations and actions of a rollout are moved and kept; the rewards are moved, and the result is thrown away.

Source: `Tensor.to` returns the moved tensor, `Module.to` moves in place; the two are often mixed up.
"""
import torch
from torch import nn

GPUS = 1


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.act = nn.Linear(8, 2)
        self.value = nn.Linear(8, 1)

    def forward(self, seen):
        h = torch.tanh(self.body(seen))
        return self.act(h), self.value(h).squeeze(-1)


def rollout(steps=6):
    seen, acts, rewards = [], [], []
    for step in range(steps):
        seen.append(torch.randn(4))
        acts.append(step % 2)
        rewards.append(float(step))
    return torch.stack(seen), torch.tensor(acts), torch.tensor(rewards)


def loss_fn(out, target):
    logits, value = out
    acts, rewards = target
    gain = rewards - value.detach()  # FAULT
    return -(logits.gather(1, acts[:, None]).squeeze(1) * gain).mean() + (rewards - value).square().mean()


def build():
    policy = Policy().to('cuda:0')
    seen, acts, rewards = rollout()
    seen = seen.to('cuda:0')
    acts = acts.to('cuda:0')
    rewards.to('cuda:0')  # BIRTH
    return dict(model=policy, args=(seen,), loss_fn=loss_fn, target=(acts, rewards),
                optimizer=torch.optim.Adam(policy.parameters(), lr=1e-2))


EXPECT = [
    dict(kind='unassigned-move', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=["rewards = rewards.to('cuda:0')"], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
