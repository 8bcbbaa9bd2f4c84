import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(6, 4).to(device)
loader = [(torch.rand(8, 6), torch.randint(0, 4, (8,))) for _ in range(3)]
for x, y in loader:
    x, y = x.to(device), y.to(device).cpu()
    nn.functional.cross_entropy(model(x), y).backward()
