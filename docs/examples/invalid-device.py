import torch
from torch import nn

model = nn.Linear(8, 2).to("gpu")
model(torch.randn(4, 8, device="cuda:0"))
