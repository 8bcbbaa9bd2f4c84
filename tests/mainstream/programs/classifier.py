import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.rand(24, 6), torch.randint(0, 3, (24,))), batch_size=8)  #^
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).to(device)
    weight = torch.tensor([1.0, 2.0, 1.0]).to(device)  #! wrong-device: weight = torch.tensor([1.0, 2.0, 1.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    right = torch.zeros((), device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)  #! wrong-device: x, y = x.to(device), y
        out = model(x)
        loss = nn.functional.cross_entropy(out, y, weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (out.argmax(1) == y).sum()
    print("accuracy", right.item() / 24)


if __name__ == "__main__":
    main()
