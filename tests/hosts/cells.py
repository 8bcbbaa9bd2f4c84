"""The notebook that every host opens: a model with one fault, and its panel."""

from __future__ import annotations

IMPORTS = "import torch\nfrom torch import nn\nimport devwidget\n\ngpus = devwidget.simulate(gpus=2).start()"
READER = """class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.GRU(8, 32, batch_first=True)

    def forward(self, picture):
        hidden = torch.zeros(1, len(picture), 32)
        return self.rows(picture, hidden)"""
PANEL = 'panel = devwidget.show(Reader().to("cuda:0"), torch.rand(16, 8, 8, device="cuda:0"))\npanel'
CELLS = [IMPORTS, READER, PANEL]

VSCODE = 'import os\nos.environ["VSCODE_PID"] = "1"'
"""What the kernel of VS Code has."""
COLAB = """import sys, types
colab, output = types.ModuleType("google.colab"), types.ModuleType("google.colab.output")
output.enable_custom_widget_manager = lambda: None
output._widgets = types.SimpleNamespace(_installed_url="/host/colab.js")
sys.modules |= {"google.colab": colab, "google.colab.output": output}"""
"""What the kernel of Colab has: its module, which says where its manager for widgets of others is."""
