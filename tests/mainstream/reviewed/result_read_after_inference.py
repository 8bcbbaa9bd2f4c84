import torch
from torch import nn


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10)

    def sample(self, word):
        words = [word]
        for _ in range(3):
            words.append(self.head(self.embed(words[-1])).argmax(-1))
        return torch.stack(words)


writer = Writer().to("cuda").eval()
words = writer.sample(torch.zeros(1, dtype=torch.long, device="cuda"))
words = words.cpu().numpy()
print(words.shape)
