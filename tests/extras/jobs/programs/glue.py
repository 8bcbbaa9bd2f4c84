"""Fine-tuning in the style of transformers' `run_glue.py`: arguments, a small BERT, sentences of made-up words, a Trainer."""

import sys
import tempfile
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    HfArgumentParser,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

WORDS = "[PAD] [UNK] [CLS] [SEP] good bad fine poor a film with story and music that I saw".split()


@dataclass
class DataArguments:
    """What is learned from."""

    train_size: int = field(default=32)
    max_seq_length: int = field(default=12)


class Sentences(Dataset):
    """Good ones and bad ones."""

    def __init__(self, tokenizer, size, longest):
        self.tokenizer, self.longest = tokenizer, longest
        generator = torch.Generator().manual_seed(0)
        self.words = [torch.randint(4, len(WORDS), (3 + at % 7,), generator=generator).tolist() for at in range(size)]

    def __len__(self):
        return len(self.words)

    def __getitem__(self, at):
        text = " ".join(WORDS[word] for word in self.words[at])
        encoded = self.tokenizer(text, truncation=True, max_length=self.longest)
        return {**encoded, "label": sum(self.words[at]) % 2}


def make_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


def main():
    with tempfile.TemporaryDirectory() as folder:
        given = (
            f"--output_dir {folder} --per_device_train_batch_size 4 --learning_rate 1e-3 --num_train_epochs 2 --logging_steps 1"
        )
        given += " --report_to none --save_strategy epoch --eval_strategy epoch --disable_tqdm True --seed 1"
        data, training = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses(
            given.split() + sys.argv[1:]
        )
        set_seed(training.seed)
        tokenizer = make_tokenizer()
        config = BertConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            num_labels=2,
        )
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=training,
            train_dataset=Sentences(tokenizer, data.train_size, data.max_seq_length),
            eval_dataset=Sentences(tokenizer, 10, data.max_seq_length),
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
        )
        trainer.train()
        trainer.evaluate()
        if trainer.is_world_process_zero():
            for entry in trainer.state.log_history:
                for name in ("loss", "grad_norm", "eval_loss", "eval_accuracy"):
                    if name in entry:
                        print("loss", entry[name], name, flush=True)
            print("device", training.device, training.world_size, training.parallel_mode.value, flush=True)


if __name__ == "__main__":
    main()
