import torch
from torch import nn


def accuracy(model, batches):
    right, seen = 0, 0
    for x, y in batches:
        right += (model(x).argmax(1) == y).sum().item()
        seen += len(y)
    return right / seen


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
batches = [(torch.randn(8, 4, device=device), torch.randint(0, 2, (8,), device=device)) for _ in range(6)]
history = []
for _ in range(2):
    total = 0.0
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
        history.append(float(loss.detach()))
    print(f"{total / 48:.3f}")
print([round(each, 3) for each in history], accuracy(model, batches))
