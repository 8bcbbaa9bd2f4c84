"""A loop that accelerate prepares, with weights and a mask of its own."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, number=16, length=6):
        self.input_ids = torch.randint(1, 20, (number, length))
        self.labels = (self.input_ids.float().mean(1) > 10).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.input_ids[index], "labels": self.labels[index]}


class Classifier(nn.Module):
    def __init__(self, vocab=20, width=8):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(vocab, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, input_ids, keep=None):
        states, _ = self.rnn(self.embed(input_ids))
        if keep is not None:
            states = states * keep.unsqueeze(-1)
        return self.head(states.mean(1))


def word_dropout(input_ids, rate, device):
    return (torch.rand(input_ids.shape, device=device) > rate).float()  #! wrong-device: return (torch.rand(input_ids.shape) > rate).float()


def training_function(config):
    accelerator = Accelerator(gradient_accumulation_steps=2)
    train_dataloader = DataLoader(Reviews(), shuffle=True, batch_size=config["batch_size"])
    eval_dataloader = DataLoader(Reviews(), batch_size=config["batch_size"])
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    class_weights = torch.tensor([1.0, 2.0], device=accelerator.device)  #! wrong-device: class_weights = torch.tensor([1.0, 2.0])
    criterion = nn.CrossEntropyLoss(weight=class_weights)
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )
    for epoch in range(config["num_epochs"]):
        model.train()
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                keep = word_dropout(batch["input_ids"], 0.1, accelerator.device)
                loss = criterion(model(batch["input_ids"], keep), batch["labels"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
        model.eval()
        correct = total = 0
        for batch in eval_dataloader:
            with torch.no_grad():
                predictions = model(batch["input_ids"]).argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, batch["labels"]))
            correct += (predictions == references).sum()
            total += len(references)
        accelerator.print(f"epoch {epoch}: {correct / total:.3f}")


if __name__ == "__main__":
    training_function({"lr": 2e-4, "num_epochs": 2, "batch_size": 4})
