"""Lumina-DiMOO: LLaDA with the codes of an image tokeniser among its tokens.

The model says codes and MASK alone: all other ids have probability 0, and the head's other rows are
never multiplied. Small ones of the same build, with words for a vocabulary, serve for work of one's
own.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones.llada import LladaConfig, LladaMDM
from remask.models.history import HistoryConfig
from remask.models.images.edit_rows import EditLayout


@dataclass(frozen=True, kw_only=True)
class LuminaConfig(LladaConfig):
    """Shape of the model and the ids of its images. The defaults are Lumina-DiMOO's."""

    vocab_size: int = 134548
    """Rows of the embedding: text, marks, MASK and codes."""
    layout: EditLayout = field(default_factory=EditLayout)

    def __post_init__(self) -> None:
        super().__post_init__()
        codes = self.layout.image
        last = codes.code_offset + codes.num_codes
        if max(last - 1, *self.layout.ids) >= self.vocab_size:
            raise ValueError(
                f"layout: ids must lie below vocab_size {self.vocab_size}, got "
                f"{max(last - 1, *self.layout.ids)}"
            )
        if codes.is_code_id(self.mask_token_id) or self.mask_token_id in self.layout.ids:
            raise ValueError(
                f"mask_token_id {self.mask_token_id} must be no code and none of layout's ids"
            )


class LuminaMDM(LladaMDM):
    """LLaDA whose head gives codes and MASK."""

    kind = "lumina"

    def __init__(self, config: LuminaConfig, history: HistoryConfig | None = None) -> None:
        super().__init__(config, history)
        self.config: LuminaConfig = config  # pyright: ignore[reportIncompatibleVariableOverride]
        self.layout = config.layout

    @property
    def allowed_ids(self) -> Tensor:
        ids = torch.arange(self.vocab_size, device=self.token_embedding.device)
        return self.can_say(ids)

    def can_say(self, ids: Tensor) -> Tensor:
        return self.config.layout.image.is_code(ids)

    def fits(self, vocab_size: int) -> bool:
        """Codes are the last ids of image edits; rows after them are unused."""
        codes = self.config.layout.image
        return vocab_size == codes.code_offset + codes.num_codes

    def head(self, hidden: Tensor) -> Tensor:
        if self.config.weight_tying:
            return _code_logits(hidden, self.token_embedding, self.config)
        return self._parts["ff_out"](hidden)

    @staticmethod
    def make_head(config: LladaConfig) -> nn.Linear:
        assert isinstance(config, LuminaConfig)
        return _CodeHead(config)


class _CodeHead(nn.Linear):
    """A whole head of which only some rows are used; a module, for what gathers weights by it."""

    def __init__(self, config: LuminaConfig) -> None:
        super().__init__(config.d_model, config.vocab_size, bias=False)
        self._config = config

    def forward(self, input: Tensor) -> Tensor:
        return _code_logits(input, self.weight, self._config)


def _code_logits(hidden: Tensor, weight: Tensor, config: LuminaConfig) -> Tensor:
    """Logits of codes and MASK, -inf for all other ids, [..., V]."""
    first, mask = config.layout.image.code_offset, config.mask_token_id
    last = first + config.layout.image.num_codes
    codes = F.linear(hidden, weight[first:last])
    logits = codes.new_full((*hidden.shape[:-1], config.vocab_size), -torch.inf)
    logits[..., first:last] = codes
    logits[..., mask] = F.linear(hidden, weight[mask : mask + 1])[..., 0]
    return logits
