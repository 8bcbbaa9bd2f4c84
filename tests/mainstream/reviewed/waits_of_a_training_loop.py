import torch
from torch import nn

model = nn.Linear(4, 2).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.rand(64, 4, device="cuda"), torch.randint(0, 2, (64,), device="cuda")
total = 0.0
for _ in range(5):
    wrong = torch.tensor([1 - label.item() for label in y], device="cuda")
    loss = nn.functional.cross_entropy(model(x), y) - nn.functional.cross_entropy(model(x), wrong)
    optimizer.zero_grad()
    loss.backward()
    total += loss.item()
    optimizer.step()
