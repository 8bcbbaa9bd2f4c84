import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(8, 2).to(device)
with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device == "cuda"):
    model(torch.randn(4, 8, device=device)).sum().backward()
