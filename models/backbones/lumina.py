"""Lumina-DiMOO: LLaDA with the codes of an image tokeniser in its vocabulary.

The head predicts codes and MASK only: all other ids have probability 0, and the other rows of the
head are never multiplied. Small models of the same architecture can be trained from scratch.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones.backbone import register_backbone
from remask.models.backbones.llada import LladaConfig, LladaMDM, published_values
from remask.models.backbones.published import Settings
from remask.models.checkpoints.sizes import Size
from remask.models.config import from_mapping
from remask.models.history import HistoryConfig
from remask.models.images.edit_rows import EditLayout
from remask.models.text.tokens import read_vocabulary


@dataclass(frozen=True, kw_only=True)
class LuminaConfig(LladaConfig):
    """Shape of the model and the ids of its images. The defaults are Lumina-DiMOO's."""

    vocab_size: Size = 134548
    """Number of rows of the embedding: text, markers, MASK and codes."""
    layout: EditLayout = field(default_factory=EditLayout)
    """The ids that image edits are written with."""

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
                f"mask_token_id {self.mask_token_id} must be neither a code nor an id of layout"
            )


@register_backbone
class LuminaMDM(LladaMDM):
    """LLaDA whose head predicts codes and MASK."""

    kind = "lumina"
    vocabulary_fields = None  # codes follow the text, so the ids of `layout` decide
    config_type = LuminaConfig
    architecture = "LLaDAForMultiModalGeneration"  # its model_type is LLaDA's

    def __init__(self, config: LuminaConfig, history: HistoryConfig | None = None) -> None:
        super().__init__(config, history)
        self.config: LuminaConfig = config  # pyright: ignore[reportIncompatibleVariableOverride]
        self.layout = config.layout

    @property
    def allowed_ids(self) -> Tensor:
        ids = torch.arange(self.vocab_size, device=self.token_embedding.device)
        return self.is_predictable(ids)

    def is_predictable(self, ids: Tensor) -> Tensor:
        return self.config.layout.image.is_code(ids)

    def fits(self, vocab_size: int) -> bool:
        """Whether the codes end at vocab_size; rows after the codes are unused."""
        codes = self.config.layout.image
        return vocab_size == codes.code_offset + codes.num_codes

    def head(self, hidden: Tensor) -> Tensor:
        if self.config.weight_tying:
            return _code_logits(hidden, self.token_embedding, self.config)
        return self._parts["ff_out"](hidden)

    @classmethod
    def read_published(cls, settings: Settings, folder: Path) -> LuminaConfig:
        values = published_values(settings)
        values["mask_token_id"] = settings.get("mask_token_id") or LuminaConfig().mask_token_id
        ids = read_vocabulary(folder).ids
        # Without these two ids the whole template counts as the instruction.
        layout = EditLayout(text_begin_id=ids.get("<user>"), text_end_id=ids.get("</user>"))
        return replace(from_mapping(LuminaConfig, values, "config"), layout=layout)

    @staticmethod
    def make_head(config: LladaConfig) -> nn.Linear:
        assert isinstance(config, LuminaConfig)
        return _CodeHead(config)


class _CodeHead(nn.Linear):
    """A full-size head of which only the rows of codes and MASK are used.

    It is a module because ZeRO-3 gathers weights per module.
    """

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
