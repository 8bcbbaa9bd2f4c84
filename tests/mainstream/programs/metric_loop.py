"""A training loop whose metrics are objects with a state of their own."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Metric:
    def __init__(self, device):
        self.device = device
        self.reset()

    def reset(self):
        raise NotImplementedError

    def update(self, predictions, targets):
        raise NotImplementedError

    def compute(self):
        raise NotImplementedError


class ConfusionMatrix(Metric):
    def __init__(self, num_classes, device):
        self.num_classes = num_classes
        super().__init__(device)

    def reset(self):
        self.matrix = torch.zeros(self.num_classes, self.num_classes, device=self.device)  #! wrong-device: self.matrix = torch.zeros(self.num_classes, self.num_classes)

    def update(self, predictions, targets):
        pairs = targets * self.num_classes + predictions.argmax(1)
        counted = torch.bincount(pairs, minlength=self.num_classes**2)
        self.matrix += counted.view(self.num_classes, self.num_classes)

    def compute(self):
        return (self.matrix.diag() / self.matrix.sum(1).clamp(min=1)).mean()


class ExpectedCalibrationError(Metric):
    def __init__(self, bins, device):
        self.bounds = torch.linspace(0, 1, bins + 1, device=device)  #! wrong-device: self.bounds = torch.linspace(0, 1, bins + 1)
        super().__init__(device)

    def reset(self):
        self.error, self.seen = torch.zeros((), device=self.device), 0

    def update(self, predictions, targets):
        confidence, label = predictions.softmax(1).max(1)
        hit = (label == targets).float()
        place = torch.bucketize(confidence, self.bounds)
        gap = torch.zeros(len(self.bounds) + 1, device=self.device).index_add_(0, place, confidence - hit)
        self.error += gap.abs().sum()
        self.seen += len(targets)

    def compute(self):
        return self.error / max(self.seen, 1)


class MetricCollection:
    def __init__(self, **metrics):
        self.metrics = metrics

    def reset(self):
        for metric in self.metrics.values():
            metric.reset()

    def update(self, predictions, targets):
        for metric in self.metrics.values():
            metric.update(predictions, targets)

    def compute(self):
        return {name: float(metric.compute()) for name, metric in self.metrics.items()}


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = TensorDataset(torch.rand(24, 6), torch.randint(0, 3, (24,)))
    train_loader, val_loader = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=12)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
    metrics = MetricCollection(confusion=ConfusionMatrix(3, device), calibration=ExpectedCalibrationError(5, device))
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss()
    for epoch in range(2):
        model.train()
        for inputs, targets in train_loader:
            inputs, targets = inputs.to(device), targets.to(device)
            loss = criterion(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        metrics.reset()
        with torch.no_grad():
            for inputs, targets in val_loader:
                metrics.update(model(inputs.to(device)), targets.to(device))
        print(epoch, metrics.compute())


main()
