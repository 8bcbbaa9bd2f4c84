import torch
from torch import nn

device = "cuda"
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)).to(device)
judge = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)).to(device)
of_generator, of_judge = torch.optim.Adam(generator.parameters()), torch.optim.Adam(judge.parameters())
criterion = nn.BCEWithLogitsLoss()
for _ in range(2):
    real = torch.rand(8, 8, device=device)
    noise = torch.randn(8, 4, device=device)  #! wrong-device: noise = torch.randn(8, 4)
    truth = torch.ones(8, 1, device=device)  #! wrong-device: truth = torch.ones(8, 1)
    fake = generator(noise)
    loss = criterion(judge(real), truth) + criterion(judge(fake.detach()), torch.zeros(8, 1, device=device))
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()
    of_generator.zero_grad()
    criterion(judge(fake), truth).backward()
    of_generator.step()
