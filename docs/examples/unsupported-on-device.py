import torch
from torch import nn

model = nn.Linear(8, 2).to("cuda:0")
found = model(torch.randn(4, 8, device="cuda:0")).detach()
counts, edges = torch.histogram(found, bins=4)
