"""Translation with attention, teacher forcing and generation, in the style of PyTorch's tutorial."""

import random

import torch
import torch.nn.functional as F
from torch import nn, optim

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SOS_token, EOS_token, MAX_LENGTH = 0, 1, 6


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)

    def forward(self, input, hidden):
        return self.gru(self.embedding(input), hidden)

    def initHidden(self, batch_size):
        return torch.zeros(1, batch_size, self.hidden_size, device=device)  #! wrong-device: return torch.zeros(1, batch_size, self.hidden_size)


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, 1)

    def forward(self, query, keys):
        weights = F.softmax(self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1), dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None):
        batch_size = encoder_outputs.size(0)
        decoder_input = torch.empty(batch_size, 1, dtype=torch.long, device=device).fill_(SOS_token)  #! wrong-device: decoder_input = torch.empty(batch_size, 1, dtype=torch.long).fill_(SOS_token)
        decoder_hidden, decoder_outputs = encoder_hidden, []
        for i in range(MAX_LENGTH):
            decoder_output, decoder_hidden = self.forward_step(decoder_input, decoder_hidden, encoder_outputs)
            decoder_outputs.append(decoder_output)
            if target_tensor is not None:
                decoder_input = target_tensor[:, i].unsqueeze(1)
            else:
                decoder_input = decoder_output.topk(1)[1].squeeze(-1).detach()
        return F.log_softmax(torch.cat(decoder_outputs, dim=1), dim=-1)

    def forward_step(self, input, hidden, encoder_outputs):
        embedded = self.embedding(input)
        context, _ = self.attention(hidden.permute(1, 0, 2), encoder_outputs)
        output, hidden = self.gru(torch.cat((embedded, context), dim=2), hidden)
        return self.out(output), hidden


def get_pairs(number):
    source = torch.randint(2, 12, (number, MAX_LENGTH))
    return [(words, words.flip(0)) for words in source]


def train_epoch(loader, encoder, decoder, optimizers, criterion, teacher_forcing_ratio=0.5):
    for source, target in loader:
        source, target = source.to(device), target.to(device)
        for optimizer in optimizers:
            optimizer.zero_grad()
        encoder_outputs, encoder_hidden = encoder(source, encoder.initHidden(source.size(0)))
        forced = target if random.random() < teacher_forcing_ratio else None
        decoder_outputs = decoder(encoder_outputs, encoder_hidden, forced)
        loss = criterion(decoder_outputs.view(-1, decoder_outputs.size(-1)), target.view(-1))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


@torch.no_grad()
def evaluate(encoder, decoder, sentence):
    input_tensor = sentence.view(1, -1).to(device)
    encoder_outputs, encoder_hidden = encoder(input_tensor, encoder.initHidden(1))
    return decoder(encoder_outputs, encoder_hidden).argmax(-1).squeeze().tolist()


random.seed(0)
pairs = get_pairs(8)
encoder, decoder = EncoderRNN(12, 8).to(device), AttnDecoderRNN(8, 12).to(device)
optimizers = [optim.Adam(part.parameters(), lr=0.01) for part in (encoder, decoder)]
for _ in range(2):
    train_epoch(torch.utils.data.DataLoader(pairs, batch_size=4, shuffle=True), encoder, decoder, optimizers, nn.NLLLoss())
print(evaluate(encoder, decoder, random.choice(pairs)[0]))
