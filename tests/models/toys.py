"""Backbones small enough to check by eye."""

import torch
from torch import Tensor

from remask.models import Backbone, HistoryConfig, revise


class Scripted(Backbone):
    """Gives the logits it is told to, call after call; MASK is id 0 and embeddings are one-hot."""

    kind = "scripted"
    mask_id = 0

    def __init__(self, script, vocab_size: int) -> None:
        """`script` is a list of [N, V] logits, one per call, the last repeated; or a function of
        (call, current tokens [B, N]) to [B, N, V]."""
        super().__init__()
        self.vocab_size = vocab_size
        self.history = HistoryConfig(variant="none", norm="match")
        self.script = script
        self.calls = 0
        self.batch_sizes: list[int] = []

    @property
    def token_embedding(self) -> Tensor:
        return torch.eye(self.vocab_size)

    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        tokens = embeds.argmax(-1)
        if callable(self.script):
            logits = self.script(self.calls, tokens)
        else:
            logits = self.script[min(self.calls, len(self.script) - 1)].expand(len(tokens), -1, -1)
        self.calls += 1
        self.batch_sizes.append(len(tokens))
        return logits

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def log_probs(rows: list[list[float]]) -> Tensor:
    """Probabilities, a row per position, to logits [N, V]."""
    return torch.tensor(rows).log()


def decode(script, tokens, vocab_size=4, **settings):
    """One row revised by scripted beliefs, for a single step unless told otherwise."""
    settings = {"max_steps": 1} | settings
    return revise(Scripted(script, vocab_size), torch.tensor([tokens]), **settings)
