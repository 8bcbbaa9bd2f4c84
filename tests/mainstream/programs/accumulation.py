import torch
from torch import nn

device = "cuda"
model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler(device)
for step in range(4):
    x = torch.rand(4, 6).to(device)  #! wrong-device: x = torch.rand(4, 6)
    y = torch.rand(4, 1).to(device)  #! wrong-device: y = torch.rand(4, 1)
    with torch.autocast(device, dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x), y) / 2
    scaler.scale(loss).backward()
    if step % 2:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
