"""A new head is attached after the optimizer was built: it is never trained."""
import torch
from torch import nn

GPUS = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.heads = nn.ModuleDict({'old': nn.Linear(6, 2)})

    def forward(self, x):
        h = self.body(x).relu()
        return sum(head(h) for head in self.heads.values())


def build():
    model = Net().cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)  # BIRTH
    model.heads['new'] = nn.Linear(6, 2).cuda()  # ALSO
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.tensor([0, 1, 0]).cuda(), optimizer=opt)


EXPECT = [
    dict(kind='optimizer-misplaced', module=None, fault_line=None, birth_line='# BIRTH', birth_alt=['# ALSO'],
         fix_contains=['add_param_group', 'after'], severity='error', fatal=False),
]
RAISES = None
