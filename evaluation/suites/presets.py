"""What the presets of the text suites have in common; each suite has its own as `PRESETS`.

A recipe says `preset: llada_base` and may override any setting beside it.

- `paper` is what we assume about the paper's text experiments, which state no lengths, steps, shots
  or prompts. The code that its authors released tunes LLaDA-8B-Instruct and decodes 256 tokens in
  one block. So the preset has no shots, the chat template, 256 tokens, and as many forward passes
  for every decoder.
- `llada_base` is how LLaDA-8B-Base was evaluated, with lm-evaluation-harness 0.4.8. Steps and
  blocks are as long as the answer.
- `llada_instruct` is how LLaDA-8B-Instruct was evaluated, with OpenCompass;
  `llada_instruct_blocks` has the short blocks that gave better scores.

Lengths, steps, blocks, shots and the treatment of early ends are the published ones, except where a
comment says otherwise. The wording of prompts and worked examples is ours (see `text_suite.py`).
"""

from typing import Any

Settings = dict[str, Any]


def decode_settings(
    gen_length: int, block_length: int | None = None, ends: str = "free", **others: Any
) -> Settings:
    """Settings of a generation suite with one step per token, as all of these presets have.

    Args:
        gen_length: Tokens of an answer, and steps.
        block_length: Tokens of a block. Defaults to one block for the whole answer.
        ends: How end tokens are treated (`generation_suite.py`).
        others: Further settings.
    """
    lengths = {"gen_length": gen_length, "steps": gen_length}
    return lengths | {"block_length": block_length or gen_length, "ends": ends} | others


PAPER = decode_settings(256, chat=True, shots=0)
LLADA_BASE = decode_settings(1024, chat=False, bos=False)
