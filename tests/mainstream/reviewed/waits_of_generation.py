import torch
from torch import nn

embed, cell, head = nn.Embedding(10, 8).cuda(), nn.GRUCell(8, 8).cuda(), nn.Linear(8, 10).cuda()
state, word, words = torch.zeros(1, 8, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda"), []
with torch.no_grad():
    for _ in range(50):
        state = cell(embed(word), state)
        index = torch.multinomial(head(state).softmax(-1), 1).item()
        word.fill_(index)
        words.append(index)
