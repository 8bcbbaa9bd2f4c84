"""A module that brings its own steps and a trainer that moves model and batch, in the shape of Lightning."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LightningModule(nn.Module):
    @property
    def device(self):
        return next(self.parameters()).device

    def log(self, name, value):
        self.trainer.logged.setdefault(name, []).append(value.detach())


def move_to_device(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: move_to_device(value, device) for key, value in batch.items()}
    return type(batch)(move_to_device(value, device) for value in batch)


class Trainer:
    def __init__(self, max_epochs, accelerator="gpu"):
        self.max_epochs, self.logged = max_epochs, {}
        self.device = torch.device("cuda", 0) if accelerator == "gpu" else torch.device("cpu")

    def fit(self, module, train_loader, val_loader=None):
        module.trainer = self
        module.to(self.device)
        optimizer = module.configure_optimizers()
        for _ in range(self.max_epochs):
            module.train()
            for index, batch in enumerate(train_loader):
                loss = module.training_step(move_to_device(batch, self.device), index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.validate(module, val_loader)

    @torch.no_grad()
    def validate(self, module, loader):
        module.eval()
        for index, batch in enumerate(loader or ()):
            module.validation_step(move_to_device(batch, self.device), index)


class LitClassifier(LightningModule):
    def __init__(self, features, classes, class_weight, lr=1e-3):
        super().__init__()
        self.lr, self.classes = lr, classes
        self.backbone = nn.Sequential(nn.Linear(features, 16), nn.ReLU())
        self.head = nn.Linear(16, classes)
        self.register_buffer("class_weight", torch.as_tensor(class_weight))  #! unregistered-tensor: self.class_weight = torch.as_tensor(class_weight)

    def forward(self, x):
        return self.head(self.backbone(x))

    def mixup(self, x, y):
        share = torch.rand(len(x), 1, device=self.device)  #! wrong-device: share = torch.rand(len(x), 1)
        target = F.one_hot(y, self.classes).float()
        return share * x + (1 - share) * x.flip(0), share * target + (1 - share) * target.flip(0)

    def training_step(self, batch, batch_idx):
        x, y = self.mixup(*batch)
        loss = F.cross_entropy(self(x), y, weight=self.class_weight)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


if __name__ == "__main__":
    data = TensorDataset(torch.rand(16, 6), torch.randint(0, 3, (16,)))
    trainer = Trainer(max_epochs=2)
    trainer.fit(LitClassifier(6, 3, [1.0, 2.0, 0.5]), DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8))
    print({name: torch.stack(values).mean().item() for name, values in trainer.logged.items()})
