"""Trains a GPT, resumes from its checkpoint, and samples from it."""

import argparse
import os
import tempfile

import torch
from model import GPT, GPTConfig

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--max-iters", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
text = "a quick brown fox jumps over the lazy dog; " * 20
stoi = {letter: number for number, letter in enumerate(sorted(set(text)))}
itos = {number: letter for letter, number in stoi.items()}
data = torch.tensor([stoi[letter] for letter in text], dtype=torch.long)


def get_batch(config):
    ix = torch.randint(len(data) - config.block_size, (args.batch_size,))
    x = torch.stack([data[i : i + config.block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + config.block_size] for i in ix])
    return x.to(args.device), y.to(args.device)


def train(model, optimizer, first, last):
    model.train()
    for _ in range(first, last):
        x, y = get_batch(model.config)
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def save(path, model, optimizer, iter_num):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "config": model.config, "iter_num": iter_num}, path)


def resume(path):
    checkpoint = torch.load(path, map_location="cpu", weights_only=False)
    model = GPT(checkpoint["config"]).to(args.device)  #! wrong-device: model = GPT(checkpoint["config"])
    model.load_state_dict(checkpoint["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer, checkpoint["iter_num"]


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "ckpt.pt")
    model = GPT(GPTConfig(vocab_size=len(stoi))).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, optimizer, 0, args.max_iters)
    save(path, model, optimizer, args.max_iters)
    model, optimizer, iter_num = resume(path)
train(model, optimizer, iter_num, iter_num + 2)
model.eval()
start = torch.tensor([stoi[letter] for letter in "fox"], dtype=torch.long, device=args.device)[None, ...]
print("".join(itos[number] for number in model.generate(start, 5, top_k=3)[0].tolist()))
