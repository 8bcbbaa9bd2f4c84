"""Adam's moments are put back by hand from a CPU checkpoint."""
import torch
from torch import nn

GPUS = 1


def resume(opt, saved):
    for param, entry in zip(opt.param_groups[0]['params'], saved):
        opt.state[param] = {k: v.cpu() for k, v in entry.items()}  # BIRTH


def build():
    model = nn.Linear(4, 2).cuda()
    opt = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 4).cuda()).sum().backward()
    opt.step()
    saved = [dict(opt.state[p]) for p in model.parameters()]
    opt = torch.optim.Adam(model.parameters())
    resume(opt, saved)
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.tensor([0, 1, 0]).cuda(), optimizer=opt)


EXPECT = [
    dict(kind='optimizer-misplaced', module=None, fault_line=None, birth_line='# BIRTH',
         fix_contains=['load_state_dict', '.to(', 'device'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device|same device'
