"""Cross validation: for each fold the model, its loss and its optimizer are built again."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CONFIG = {"folds": 2, "epochs": 2, "batch_size": 8, "lr": 1e-3, "features": 6, "classes": 3}


class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.hidden, self.head = nn.Linear(features, 16), nn.Linear(16, classes)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        return self.head(self.dropout(torch.relu(self.hidden(self.norm(x)))))


def reset_weights(m):
    if hasattr(m, "reset_parameters"):
        m.reset_parameters()


def fold_indices(number, folds):
    order = np.random.default_rng(0).permutation(number)
    for part in np.array_split(order, folds):
        yield np.setdiff1d(order, part), part


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    for inputs, targets in loader:
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()


def validate(model, loader, criterion):
    model.eval()
    outputs, labels = [], []
    with torch.no_grad():
        for inputs, targets in loader:
            outputs.append(model(inputs.to(DEVICE)))
            labels.append(targets)
    outputs, labels = torch.cat(outputs), torch.cat(labels).to(DEVICE)  #! wrong-device: outputs, labels = torch.cat(outputs), torch.cat(labels)
    return criterion(outputs, labels).item(), (outputs.argmax(1) == labels).float().mean().item()


features = torch.rand(32, CONFIG["features"])
labels = torch.randint(0, CONFIG["classes"], (32,))  #^
dataset, results = TensorDataset(features, labels), {}
for fold, (train_ids, test_ids) in enumerate(fold_indices(len(dataset), CONFIG["folds"])):
    train_loader = DataLoader(dataset, batch_size=CONFIG["batch_size"], sampler=SubsetRandomSampler(train_ids))
    test_loader = DataLoader(dataset, batch_size=CONFIG["batch_size"], sampler=SubsetRandomSampler(test_ids))
    model = Net(CONFIG["features"], CONFIG["classes"]).to(DEVICE)
    model.apply(reset_weights)
    weights = 1.0 / torch.bincount(labels[train_ids], minlength=CONFIG["classes"]).clamp(min=1)
    criterion = nn.CrossEntropyLoss(weight=weights.to(DEVICE))  #! wrong-device: criterion = nn.CrossEntropyLoss(weight=weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=CONFIG["lr"])
    for epoch in range(CONFIG["epochs"]):
        train_epoch(model, train_loader, criterion, optimizer)
    results[fold] = validate(model, test_loader, criterion)
for fold, (loss, accuracy) in results.items():
    print(f"fold {fold}: loss {loss:.3f}, accuracy {accuracy:.2f}")
