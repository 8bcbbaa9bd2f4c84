"""Mixed precision with a scaler, accumulation and a scheduler, in the style of PyTorch's recipe."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
use_amp, accumulate = True, 2


class ConvNet(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()
        )
        self.classifier = nn.Linear(16, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def get_loaders():
    images, labels = torch.rand(32, 3, 8, 8), torch.randint(0, 5, (32,))  #^
    data = torch.utils.data.TensorDataset(images, labels)
    return (torch.utils.data.DataLoader(data, batch_size=8, shuffle=shuffle) for shuffle in (True, False))


def class_weights(loader):
    counts = torch.bincount(torch.cat([labels for _, labels in loader]), minlength=5).float()
    return counts.sum() / counts.clamp(min=1)


train_loader, val_loader = get_loaders()
model = ConvNet().to(device)
criterion = nn.CrossEntropyLoss(weight=class_weights(train_loader).to(device), label_smoothing=0.1)  #! wrong-device: criterion = nn.CrossEntropyLoss(weight=class_weights(train_loader), label_smoothing=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=8)
scaler = torch.amp.GradScaler(device, enabled=use_amp)

for epoch in range(2):
    model.train()
    running = torch.zeros((), device=device)
    for step, (images, labels) in enumerate(train_loader):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device_type=device, dtype=torch.float16, enabled=use_amp):
            loss = criterion(model(images), labels) / accumulate
        scaler.scale(loss).backward()
        running += loss.detach()
        if (step + 1) % accumulate == 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
    model.eval()
    correct = torch.zeros((), device=device)
    with torch.no_grad():
        for images, labels in val_loader:
            images = images.to(device)
            labels = labels.to(device)  #! wrong-device: labels = labels.long()
            with torch.autocast(device_type=device, dtype=torch.float16, enabled=use_amp):
                predicted = model(images).argmax(1)
            correct += (predicted == labels).sum()
    print(f"epoch {epoch}: loss {running / len(train_loader):.3f}, accuracy {correct / 32:.2f}")
