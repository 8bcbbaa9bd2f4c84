"""Tokens left on the CPU and a model of a library: every frame of the forward pass is a library's."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

GPUS = 1
EXPECT = [
    dict(kind='wrong-device', module='transformer.wte', fault_line=None, birth_line='# BIRTH', fix_contains=['device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'


def build():
    sizes = {'vocab_size': 64, 'n_embd': 16, 'n_layer': 2, 'n_head': 2, 'n_positions': 16}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval().to('cuda:0')
    tokens = torch.randint(0, 60, (1, 8))  # BIRTH
    return {'model': model, 'kwargs': {'input_ids': tokens}}
