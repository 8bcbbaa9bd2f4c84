"""A siamese network with a contrastive loss that has a margin and class prototypes of its own."""

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


class PairDataset(Dataset):
    def __init__(self, number=16):
        self.images, self.labels = torch.rand(number, 1, 8, 8), torch.arange(number) % 4  #^

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        other = (index * 7 + 3) % len(self)
        return self.images[index], self.images[other], (self.labels[index] == self.labels[other]).float()


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.fc = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward_once(self, x):
        return self.fc(self.cnn(x))

    def forward(self, one, two):
        return self.forward_once(one), self.forward_once(two)


class ContrastiveLoss(nn.Module):
    def __init__(self, dim, margin=1.0):
        super().__init__()
        self.margin = margin
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, one, two, same):
        distance = F.pairwise_distance(one * self.scale, two * self.scale)
        return torch.mean(same * distance.pow(2) + (1 - same) * torch.clamp(self.margin - distance, min=0.0).pow(2))


def train(net, criterion, loader, optimizer, device):
    net.train()
    history = []
    for one, two, label in loader:
        one, two, label = one.to(device), two.to(device), label.to(device)  #! wrong-device: one, two = one.to(device), two.to(device)
        optimizer.zero_grad()
        out1, out2 = net(one, two)
        loss = criterion(out1, out2, label)
        loss.backward()
        optimizer.step()
        history.append(loss.detach())
    return torch.stack(history).mean().item()


def main():
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(PairDataset(), shuffle=True, batch_size=4)
    net = SiameseNetwork().to(device)
    criterion = ContrastiveLoss(8).to(device)  #! wrong-device: criterion = ContrastiveLoss(8)
    optimizer = optim.Adam([*net.parameters(), *criterion.parameters()], lr=5e-4)
    for epoch in range(2):
        print(f"epoch {epoch}: loss {train(net, criterion, loader, optimizer, device):.4f}")
    net.eval()
    one, two, _ = next(iter(loader))
    with torch.no_grad():
        distance = F.pairwise_distance(*net(one.to(device), two.to(device)))
    print(distance.cpu().numpy())


if __name__ == "__main__":
    main()
