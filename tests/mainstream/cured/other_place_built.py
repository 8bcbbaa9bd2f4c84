import sys, textwrap, pathlib, tempfile

folder = tempfile.mkdtemp()
pathlib.Path(folder, "tinymodel.py").write_text(
    textwrap.dedent("""
    from torch import nn
    class GPT(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.wte = nn.Embedding(8, width)
        def forward(self, idx):
            return self.wte(idx)
        @classmethod
        def from_pretrained(cls, name):
            model = GPT(16)
            return model
""")
)
sys.path.insert(0, folder)
import torch
from tinymodel import GPT

device = "cuda" if torch.cuda.is_available() else "cpu"
model = GPT(4)
model.eval()
print(model(torch.tensor([[1, 2]], device=device)).shape)
