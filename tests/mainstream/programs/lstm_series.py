"""A stateful LSTM that predicts a time series, and rolls its forecast on."""

import math

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Scaler:
    """Takes the mean away and divides by the deviation, as scikit-learn's does, and undoes it."""

    def fit(self, series):
        self.mean, self.std = series.mean(0), series.std(0)
        return self

    def transform(self, series):
        return (series - self.mean) / self.std

    def inverse_transform(self, series):
        return series * self.std + self.mean


class Forecaster(nn.Module):
    def __init__(self, features=2, hidden_size=8, num_layers=2):
        super().__init__()
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.lstm = nn.LSTM(features, hidden_size, num_layers, batch_first=True)
        self.linear = nn.Linear(hidden_size, features)

    def init_hidden(self, batch_size):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.num_layers, batch_size, self.hidden_size),
            weight.new_zeros(self.num_layers, batch_size, self.hidden_size),  #! wrong-device: torch.zeros(self.num_layers, batch_size, self.hidden_size),
        )

    def forward(self, x, hidden):
        out, hidden = self.lstm(x, hidden)
        return self.linear(out), hidden


def detach(hidden):
    return tuple(part.detach() for part in hidden)


time = torch.arange(0, 64) * (2 * math.pi / 16)  #^
series = torch.stack([time.sin() * 3 + 5, time.cos() * 2 - 1], dim=-1)
scaler = Scaler().fit(series)
windows = scaler.transform(series).view(4, 16, 2)

model = Forecaster().to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    hidden = model.init_hidden(4)
    for start in range(0, 12, 4):
        hidden = detach(hidden)
        x = windows[:, start : start + 4].to(device)
        y = windows[:, start + 1 : start + 5].to(device)
        prediction, hidden = model(x, hidden)
        loss = criterion(prediction, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

model.eval()
with torch.no_grad():
    hidden, window, forecast = model.init_hidden(1), windows[-1:, -4:].to(device), []
    for _ in range(3):
        out, hidden = model(window, hidden)
        window = out[:, -1:]
        forecast.append(window.squeeze(1))
    forecast = scaler.inverse_transform(torch.cat(forecast).cpu())  #! wrong-device: forecast = scaler.inverse_transform(torch.cat(forecast))
print(forecast)
