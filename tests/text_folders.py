"""A real tokenizer in small, and a LLaDA of random weights that uses it: any text is its bytes."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from models import LladaConfig, LladaMDM
from tests.models.folders import LLADA, randomise, write_folder

SPECIAL = ["<|startoftext|>", "<|endoftext|>", "<|head|>", "<|mdm_mask|>", "<|eot_id|>"]
BOS, EOS, HEAD, MASK, EOT = range(256, 261)
VOCABULARY = 264
TEMPLATE = (
    "{% for m in messages %}{{ bos_token if loop.first }}<|head|>{{ m.role }}: {{ m.content }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|head|>assistant: {% endif %}"
)


def write_text_tokenizer(folder: Path, *, mask: bool = True, chat: bool = True) -> str:
    """A tokenizer of bytes with LLaDA's special tokens, whose MASK has no role of its own."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([x if mask or "mask" not in x else "<|none|>" for x in SPECIAL])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[1]
    )
    tokenizer.chat_template = TEMPLATE if chat else None
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_llada(folder: Path, *, seed: int = 0, max_length: int = 512) -> str:
    """A published folder: config, weights, tokenizer."""
    settings = {"vocab_size": VOCABULARY, "embedding_size": VOCABULARY, "mask_token_id": MASK}
    shape = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 48}
    length = {"max_sequence_length": max_length}
    config = LladaConfig(
        **shape, **length, vocab_size=VOCABULARY, mask_token_id=MASK, rope_theta=10000.0
    )
    model = randomise(LladaMDM(config), seed)
    with torch.no_grad():  # else a random model says one token everywhere
        model.token_embedding.mul_(10)
    tensors = {k: x.clone() for k, x in model.state_dict().items()}
    write_folder(folder, LLADA | shape | length | settings, tensors, tokenizer=False)
    return write_text_tokenizer(folder)


def write_rows(path: Path, *rows: dict) -> str:
    """A JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
