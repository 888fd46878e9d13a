"""A model with scripted answers, so that the scores of a suite can be written out."""

import torch
from torch import Tensor

from tests.models.toys import Scripted
from tests.text_folders import EOS, HEAD, MASK, VOCABULARY

OPENING = "assistant: "


class Speaker(Scripted):
    """Answers a chat with the value of the first key of `answers` in it, then with end tokens.

    If `drafts` has another text for the key, that text comes first and is re-masked from the third
    call on.
    """

    mask_id = MASK

    def __init__(self, codec, answers: dict[str, str], drafts: dict[str, str] | None = None):
        super().__init__(self._say, VOCABULARY)
        self.codec, self.answers, self.drafts = codec, answers, drafts or {}

    def _say(self, call: int, tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, VOCABULARY)
        for row, ids in enumerate(tokens.tolist()):
            start = len(ids) - ids[::-1].index(HEAD) + len(OPENING)
            key = self._asked(self.codec.inner.decode(ids[:start]))
            wanted = self.codec.encode(self.answers[key])
            draft = self.codec.encode(self.drafts.get(key, self.answers[key]))
            said = draft if call < 2 else wanted
            for place in range(start, len(ids)):
                token = said[place - start] if place - start < len(said) else EOS
                logits[row, place, token] = 20.0 - 0.01 * place  # the left is surer
                if ids[place] not in (token, MASK):
                    logits[row, place, MASK] = 30.0
        return logits

    def _asked(self, text: str) -> str:
        question = text.rpartition("user: ")[2]
        return next(key for key in self.answers if key in question)
