"""A trainer saves the wrapped model and resumes into the plain one, not strict."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())


class Trainer:
    def __init__(self, model):
        self.model = model

    def save(self):
        wrapped = nn.DataParallel(self.model)
        return {'epoch': 3, 'model': wrapped.state_dict()}  # BIRTH

    def resume(self, checkpoint):
        self.model.load_state_dict(checkpoint['model'], strict=False)  # FAULT


def build():
    first = Trainer(Net().cuda())
    state = first.save()
    second = Trainer(Net().cuda())
    second.resume(state)
    return dict(model=second.model, args=(torch.randn(3, 4).cuda(),), target=torch.tensor([0, 1, 0]).cuda(), loss_fn=nn.CrossEntropyLoss())


EXPECT = [
    dict(kind='state-dict-prefix', module=None, fault_line='# FAULT', birth_line='# BIRTH', birth_alt=['# FAULT'],
         fix_contains=['removeprefix', 'module.'], severity='error', fatal=False),
]
RAISES = None
