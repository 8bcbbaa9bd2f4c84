import torch
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(12, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 12)

    def forward(self, ids, state):
        out, state = self.rnn(self.embed(ids), state)
        return self.head(out), state


model = Words().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hidden = torch.zeros(1, 4, 8, device="cuda")  #! wrong-device: hidden = torch.zeros(1, 4, 8)
state = (hidden, torch.zeros(1, 4, 8, device="cuda"))
text = torch.randint(0, 12, (4, 21)).to("cuda")  #! wrong-device: text = torch.randint(0, 12, (4, 21))
for start in range(0, 20, 5):
    state = tuple(part.detach() for part in state)
    out, state = model(text[:, start : start + 5], state)
    loss = nn.functional.cross_entropy(out.flatten(0, 1), text[:, start + 1 : start + 6].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
