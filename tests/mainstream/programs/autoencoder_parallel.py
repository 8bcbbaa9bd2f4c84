"""A denoising autoencoder on all GPUs with nn.DataParallel."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self, size, code):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size, 32), nn.ReLU(), nn.Linear(32, code))

    def forward(self, x):
        return self.layers(x)


class Decoder(nn.Module):
    def __init__(self, size, code):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(code, 32), nn.ReLU(), nn.Linear(32, size), nn.Sigmoid())

    def forward(self, z):
        return self.layers(z)


class DenoisingAutoencoder(nn.Module):
    def __init__(self, size=16, code=4, noise=0.1):
        super().__init__()
        self.encoder, self.decoder = Encoder(size, code), Decoder(size, code)
        self.noise = noise

    def forward(self, x):
        if self.training:
            noise = torch.randn(x.shape, device=x.device)  #! wrong-device: noise = torch.randn(x.shape, device="cuda:0")
            x = x + self.noise * noise
        code = self.encoder(x)
        return self.decoder(code), code


def build(device):
    model = DenoisingAutoencoder()
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    return model.to(device)


def train(model, loader, optimizer, device, epochs=2):
    criterion = nn.MSELoss()
    model.train()
    for epoch in range(epochs):
        total = torch.zeros((), device=device)
        for (images,) in loader:
            images = images.to(device)  #! wrong-device: images = images.float()
            reconstructed, code = model(images)
            loss = criterion(reconstructed, images) + 1e-4 * code.abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(loader):.4f}")


def main():
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(torch.rand(32, 16)), batch_size=8, shuffle=True)  #^
    model = build(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    train(model, loader, optimizer, device)
    model.eval()
    with torch.no_grad():
        reconstructed, _ = model(next(iter(loader))[0].to(device))
    module = model.module if isinstance(model, nn.DataParallel) else model
    print(reconstructed.shape, sorted(module.state_dict())[:1])


if __name__ == "__main__":
    main()
