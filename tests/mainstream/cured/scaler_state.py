import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Linear(4, 2)
old = torch.optim.AdamW(model.parameters(), lr=1e-3)
model(torch.ones(1, 4)).sum().backward()
old.step()
scaler = torch.amp.GradScaler(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
optimizer.load_state_dict(old.state_dict())
model.to(device)
loss = model(torch.ones(3, 4, device=device)).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
