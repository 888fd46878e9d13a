"""A real tokenizer in small, of letters, and a LLaDA of random weights that uses it."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from remask.models import LladaConfig, LladaMDM
from tests.models.folders import LLADA, randomise, write_folder

SPECIAL = ["<|startoftext|>", "<|endoftext|>", "<|head|>", "<|mdm_mask|>", "<|eot_id|>"]
BOS, EOS, HEAD, MASK, EOT = range(256, 261)
VOCABULARY = 264
TEMPLATE = (
    "{% for m in messages %}{{ bos_token if loop.first }}<|head|>{{ m.role }}: {{ m.content }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|head|>assistant: {% endif %}"
)


def write_text_tokenizer(folder: Path, *, mask: bool = True, chat: bool = True) -> str:
    """A tokenizer of Latin letters with special tokens as LLaDA has; none has the role of MASK."""
    inner = Tokenizer(models.BPE(vocab={chr(i): i for i in range(256)}, merges=[]))
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens([x if mask or "mask" not in x else "<|none|>" for x in SPECIAL])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[1]
    )
    tokenizer.chat_template = TEMPLATE if chat else None
    tokenizer.save_pretrained(folder)
    return str(folder)


def lively(model: LladaMDM, seed: int) -> LladaMDM:
    """Random weights large enough that what is said depends on place and surroundings."""
    with torch.no_grad():
        for x in randomise(model, seed).parameters():
            x.mul_(4 if x.ndim == 2 else 1)
    return model


def write_llada(folder: Path, *, seed: int = 0, max_length: int = 512) -> str:
    """A published folder: config, weights, tokenizer."""
    settings = {"vocab_size": VOCABULARY, "embedding_size": VOCABULARY, "mask_token_id": MASK}
    shape = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 48}
    length = {"max_sequence_length": max_length}
    config = LladaConfig(
        **shape, **length, vocab_size=VOCABULARY, mask_token_id=MASK, rope_theta=10000.0
    )
    model = lively(LladaMDM(config), seed)
    tensors = {k: x.clone() for k, x in model.state_dict().items()}
    write_folder(folder, LLADA | shape | length | settings, tensors, tokenizer=False)
    return write_text_tokenizer(folder)


def write_rows(path: Path, *rows: dict) -> str:
    """A JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
