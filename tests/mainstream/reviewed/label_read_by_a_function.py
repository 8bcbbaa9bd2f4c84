import torch
from torch import nn

model = nn.Linear(4, 3).to("cuda")
names = ["ant", "bee", "cat"]


def name_of(output):
    index = output.argmax().item()
    return names[index]


output = model(torch.rand(4, device="cuda"))
print(name_of(output))
