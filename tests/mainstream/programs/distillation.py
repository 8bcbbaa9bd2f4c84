"""Knowledge distillation: a deep teacher, a light student, a soft and a hard loss, in the style of PyTorch's tutorial."""

import torch
import torch.nn.functional as F
from torch import nn, optim

device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"


class DeepNN(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))
        self.classifier = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, num_classes))

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class LightNN(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))
        self.classifier = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


def train(model, train_loader, epochs, device):
    criterion, optimizer = nn.CrossEntropyLoss(), optim.Adam(model.parameters(), lr=0.001)
    model.train()
    for epoch in range(epochs):
        running_loss = 0.0
        for inputs, labels in train_loader:
            inputs, labels = inputs.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        print(f"Epoch {epoch + 1}/{epochs}, Loss: {running_loss / len(train_loader)}")


def train_knowledge_distillation(teacher, student, train_loader, epochs, device, T=2, soft_target_loss_weight=0.25):
    ce_loss, optimizer = nn.CrossEntropyLoss(), optim.Adam(student.parameters(), lr=0.001)
    teacher.eval()
    student.train()
    for _ in range(epochs):
        for inputs, labels in train_loader:
            inputs, labels = inputs.to(device), labels.to(device)  #! wrong-device: inputs = inputs.to(device)
            optimizer.zero_grad()
            with torch.no_grad():
                teacher_logits = teacher(inputs)
            student_logits = student(inputs)
            soft_targets = F.softmax(teacher_logits / T, dim=-1)
            soft_prob = F.log_softmax(student_logits / T, dim=-1)
            soft_targets_loss = torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0] * (T**2)
            label_loss = ce_loss(student_logits, labels)
            loss = soft_target_loss_weight * soft_targets_loss + (1 - soft_target_loss_weight) * label_loss
            loss.backward()
            optimizer.step()


def test(model, test_loader, device):
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, labels in test_loader:
            inputs, labels = inputs.to(device), labels.to(device)
            _, predicted = torch.max(model(inputs).data, 1)
            total += labels.size(0)
            correct += (predicted == labels).sum().item()
    print(f"Test Accuracy: {100 * correct / total:.2f}%")


def main():
    data = torch.utils.data.TensorDataset(torch.rand(16, 3, 8, 8), torch.randint(0, 4, (16,)))  #^
    train_loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    test_loader = torch.utils.data.DataLoader(data, batch_size=8)
    nn_deep = DeepNN().to(device)
    train(nn_deep, train_loader, epochs=1, device=device)
    new_nn_light = LightNN().to(device)  #! wrong-device: new_nn_light = LightNN()
    train_knowledge_distillation(nn_deep, new_nn_light, train_loader, 2, device)
    test(new_nn_light, test_loader, device)


main()
