"""Settings of the text suites by name. A recipe says `preset: llada_base` and overrides at will.

- `paper`: what we assume of the paper's text experiments. It gives no lengths, steps, shots or
  prompts; the code that its authors released tunes LLaDA-8B-Instruct and decodes 256 tokens in one
  block. So: no shots, the chat template, 256 tokens, and as many forward passes for every decoder.
  ARC is scored by a forward pass alone, as the paper says; that the choices are listed and the
  letter is scored is our guess, for the score of its base model is far above what LLaDA's
  likelihood of the choices' texts gives.
- `llada_base`: as LLaDA-8B-Base was evaluated, with lm-evaluation-harness 0.4.8. Steps and block
  are as long as the answer.
- `llada_instruct`: as LLaDA-8B-Instruct was, with OpenCompass; `llada_instruct_blocks` has the
  short blocks that served it better.

Lengths, steps, blocks, shots, and what is done about early ends are the published ones, except
those marked; wordings of prompts and worked examples are ours (see `text_suite.py`).
"""

from typing import Any

Settings = dict[str, Any]


def _decode(
    gen_length: int, block_length: int | None = None, ends: str = "free", **more: Any
) -> Settings:
    """Steps as many as tokens, as all of these have it."""
    lengths = {"gen_length": gen_length, "steps": gen_length}
    return lengths | {"block_length": block_length or gen_length, "ends": ends} | more


_PAPER = _decode(256, chat=True, shots=0)
_BASE = _decode(1024, chat=False, bos=False)

PRESETS: dict[str, dict[str, Settings]] = {
    "math": {
        "paper": _PAPER,
        "llada_base": _BASE | {"shots": 4},
        "llada_instruct": _decode(512, ends="late", chat=True, shots=0),
        "llada_instruct_blocks": _decode(512, 64, ends="late", chat=True, shots=0),
    },
    "gsm8k": {
        "paper": _PAPER,
        "llada_base": _BASE | {"shots": 5},  # the harness's default for this task
        "llada_instruct": _decode(512, ends="late", chat=True, shots=0),
        "llada_instruct_blocks": _decode(256, 8, ends="late", chat=True, shots=0),
    },
    "mbpp": {
        "paper": _PAPER,
        "llada_base": _BASE | {"shots": 3},
        "llada_instruct": _decode(256, ends="late", chat=True, shots=3),
    },
    "humaneval": {
        "paper": _PAPER,  # not in the paper; set as its others are
        "llada_base": _BASE | {"shots": 0},
        "llada_instruct": _decode(512, ends="late", chat=True, shots=0),  # length assumed
    },
    "arc_generation": {
        "paper": _PAPER,
        "llada_instruct": _decode(512, chat=True, shots=0),
    },
    "arc": {
        "paper": {"chat": True, "shots": 0, "scored": "letters"},
        "llada_base": {"chat": False, "bos": False, "scored": "texts", "mc_num": 128, "cfg": 0.5},
    },
}


def with_preset(kind: str, settings: Settings, where: str) -> Settings:
    """A suite's settings, over those of the preset that they name."""
    name = settings.get("preset")
    known = PRESETS.get(kind, {})
    if name is None or not known:  # other suites have no such key, and will say so
        return settings
    if name not in list(known):  # a list of values has no hash
        raise ValueError(f"{where}: preset must be one of {sorted(known)}, got {name!r}")
    return known[name] | settings
