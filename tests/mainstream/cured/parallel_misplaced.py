import torch
from torch import nn

model = nn.Linear(4, 2)
model = nn.DataParallel(model)
model.to("cuda:1")
print(model(torch.rand(8, 4, device="cuda:1")).shape)
