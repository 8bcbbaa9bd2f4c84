"""Clean: everything is float64, because a physicist wants it so."""
import numpy as np
import torch
from torch import nn

GPUS = 1


def build():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double().cuda()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 4))).cuda()
    return dict(model=model, args=(x,), loss_fn=nn.MSELoss(), target=torch.zeros(5, 1, dtype=torch.float64).cuda(),
                optimizer=torch.optim.LBFGS(model.parameters()) if False else torch.optim.Adam(model.parameters()))


EXPECT = []
RAISES = None
