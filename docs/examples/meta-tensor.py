import torch
from torch import nn

with torch.device("meta"):
    model = nn.Linear(8, 2)

model = model.to("cuda:0")
model(torch.randn(4, 8, device="cuda:0"))
