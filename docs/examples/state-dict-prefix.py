import torch
from torch import nn

trained = nn.DataParallel(nn.Linear(8, 2).to("cuda:0"))
plain = nn.Linear(8, 2).to("cuda:1")
plain.load_state_dict(trained.state_dict(), strict=False)
plain(torch.randn(4, 8, device="cuda:1"))
