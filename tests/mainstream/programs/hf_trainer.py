"""A transformers.Trainer with a loss of its own around a model of one's own."""

import tempfile

import numpy as np
import torch
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedModel, Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput


class BertTagger(PreTrainedModel):
    config_class = BertConfig

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, labels=None):
        hidden = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        ranks = torch.arange(hidden.shape[1], device=hidden.device)  #! wrong-device: ranks = torch.arange(hidden.shape[1])
        weight = attention_mask / (1 + ranks)
        pooled = (hidden * weight.unsqueeze(-1)).sum(1) / weight.sum(1, keepdim=True)
        return SequenceClassifierOutput(logits=self.classifier(pooled))


class WeightedTrainer(Trainer):
    def __init__(self, *args, class_weights, **kwargs):
        super().__init__(*args, **kwargs)
        self.class_weights = class_weights

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        weight = self.class_weights.to(outputs.logits.device)  #! wrong-device: weight = self.class_weights
        loss = nn.functional.cross_entropy(outputs.logits, labels, weight=weight)
        return (loss, outputs) if return_outputs else loss


class Sentences(torch.utils.data.Dataset):
    def __init__(self, number=8, length=6):
        self.input_ids = torch.randint(1, 30, (number, length))
        self.labels = self.input_ids[:, 0] % 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        ids = self.input_ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": self.labels[index]}


def compute_metrics(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, axis=-1) == prediction.label_ids).mean())}


def main():
    config = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=8, num_labels=2
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=2, per_device_train_batch_size=4, logging_strategy="no", save_strategy="no",
            report_to=[], disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = WeightedTrainer(
            model=BertTagger(config), args=arguments, train_dataset=Sentences(), eval_dataset=Sentences(4),
            compute_metrics=compute_metrics, class_weights=torch.tensor([1.0, 3.0]),  #^
        )  # fmt: skip
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
