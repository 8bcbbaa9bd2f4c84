"""A global table is copied to the GPU by the loss at every step."""
import torch
from torch import nn

GPUS = 1
COST = torch.rand(40, 40)  # BIRTH


def loss_fn(out, target):
    cost = COST.cuda()[target]  # FAULT
    return (out.softmax(-1) * cost).sum(-1).mean()


def build():
    model = nn.Linear(8, 40).cuda()
    return dict(model=model, args=(torch.randn(3, 8).cuda(),), loss_fn=loss_fn, target=torch.randint(0, 40, (3,)).cuda())


EXPECT = [
    dict(kind='needless-hop', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['once', 'COST', 'cuda'], severity='warning', fatal=False),
]
RAISES = None
