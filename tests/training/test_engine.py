"""What the engine does to a backbone without DeepSpeed."""

import pytest
import torch

from remask.models import DreamConfig, DreamMDM, MaskedLM, MaskedLMConfig
from remask.training.engine import recompute_blocks
from tests.models.backbones.test_masked_lm import OWN, SMALL
from tests.models.folders import DREAM, randomise

NAMES = ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size", "mask_token_id")
HEADS = ("num_attention_heads", "num_key_value_heads")


@pytest.mark.parametrize("kind", ["albert", "bert", "distilbert", "modernbert", "dream"])
def test_recomputing_gives_the_same_gradients(kind):
    if kind == "dream":
        model = DreamMDM(DreamConfig(**{name: DREAM[name] for name in (*NAMES, *HEADS)}))
    else:
        settings = SMALL | OWN.get(kind, {})
        model = MaskedLM(MaskedLMConfig(model_type=kind, settings=settings, mask_token_id=5))
    randomise(model)
    keep = torch.arange(12).expand(2, -1) < torch.tensor([[12], [9]])

    def gradients():
        model.zero_grad()
        embeds = model.embed(torch.arange(24).view(2, 12))
        model.logits(embeds, attention_mask=keep)[keep].logsumexp(-1).sum().backward()
        return {name: x.grad for name, x in model.named_parameters()}

    plain = gradients()
    assert all(x is not None for x in plain.values())
    recompute_blocks(model)
    for name, x in gradients().items():
        torch.testing.assert_close(x, plain[name])
