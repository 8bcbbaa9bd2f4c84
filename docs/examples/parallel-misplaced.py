import torch
from torch import nn

model = nn.DataParallel(nn.Linear(8, 2).to("cuda:0"), device_ids=[1, 0])
model(torch.randn(4, 8, device="cuda:0"))
