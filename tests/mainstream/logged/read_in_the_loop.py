import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
total, shown = 0.0, []
for step in range(6):
    loss = model(torch.randn(8, 4, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
    shown.append(round(loss.item(), 3))
    if step % 3 == 2:
        print(f"{total / 3:.3f}", shown[-1])
        total = 0.0
