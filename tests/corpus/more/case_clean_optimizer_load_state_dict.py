"""Clean: a CPU checkpoint of Adam goes through load_state_dict, which moves the moments to the parameters."""
import io

import torch
from torch import nn

GPUS = 1


def build():
    model = nn.Linear(4, 2).cuda()
    opt = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 4).cuda()).sum().backward()
    opt.step()
    file = io.BytesIO()
    torch.save({'model': model.state_dict(), 'opt': opt.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, map_location='cpu')
    model = nn.Linear(4, 2).cuda()
    model.load_state_dict(saved['model'])
    opt = torch.optim.Adam(model.parameters())
    opt.load_state_dict(saved['opt'])
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.tensor([0, 1, 0]).cuda(), optimizer=opt)


EXPECT = []
RAISES = None
