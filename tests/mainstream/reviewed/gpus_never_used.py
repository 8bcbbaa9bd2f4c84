import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--cuda", action="store_true")
device = "cuda" if parser.parse_args().cuda else "cpu"
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.rand(3, 4, device=device)).sum().backward()
optimizer.step()
