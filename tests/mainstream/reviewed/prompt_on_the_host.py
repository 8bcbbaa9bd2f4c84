"""A prompt on the CPU is given to `generate` of a model on a GPU: each token goes there, and each result comes back."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=64, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config).to("cuda").eval()
prompt = torch.tensor([[1, 2, 3, 4]])
mask = torch.ones_like(prompt)
out = model.generate(prompt, attention_mask=mask, min_new_tokens=15, max_new_tokens=15, do_sample=False, pad_token_id=0)
there = model.generate(prompt.to("cuda"), attention_mask=mask.to("cuda"), max_new_tokens=15, do_sample=False, pad_token_id=0)
