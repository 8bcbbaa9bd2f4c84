import torch
from torch import nn

model = nn.Linear(8, 2).to("cuda:0")
x = torch.randn(4, 8)
x.to("cuda:0")
model(x)
