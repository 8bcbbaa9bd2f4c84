import torch
from torch import nn

torch.cuda.set_device(1)
model = torch.nn.DataParallel(nn.Linear(4, 2)).cuda()
print(model(torch.rand(8, 4).cuda()).shape)
