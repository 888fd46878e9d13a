"""Checkpoints in lm-evaluation-harness, as the model `remask`: its tasks, our decoders.

Importing this module registers it; `remask harness` (`infra/harness.py`) does so and then is the
harness's own command.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from remask.evaluation.decode.generation import fit_to_masks, generate
from remask.evaluation.decode.likelihood import Likelihood, log_likelihood
from remask.evaluation.decoder import Decoder
from remask.models import load
from remask.models.checkpoints.checkpoint import trained_history
from remask.models.config import from_mapping
from remask.models.text.prompts import check_room, load_tokenizer

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

GEN_LENGTH = 256
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@register_model("remask")
class RemaskLM(TemplateLM):
    """A checkpoint of ours or a published one.

    Args:
        checkpoint: Its folder.
        tokenizer: Folder of its tokenizer; the checkpoint's own when none.
        policy: How answers are decoded: revision, absorbing, remdm or p2.
        gen_length: Tokens of an answer; what the task says, or 256, when none.
        steps: Forward passes; as many as tokens when none.
        mc_num: Draws of masks for a likelihood.
        cfg: Guidance, in likelihoods.
        seed: Of all draws.
        bos: Begin with the tokenizer's BOS.
        batch_size: Rows at once.
        device: Where to run; a GPU where there is one, when none.
        dtype: float32, bfloat16 or float16; as saved when none.
        settings: Of the policy, such as reveal_count=2 or block_length=32.
    """

    def __init__(
        self,
        checkpoint: str,
        tokenizer: str | None = None,
        policy: str = "absorbing",
        gen_length: int | None = None,
        steps: int | None = None,
        mc_num: int = 128,
        cfg: float = 0.0,
        seed: int = 0,
        bos: bool = False,
        batch_size: int | str = 8,
        device: str | None = None,
        dtype: str | None = None,
        max_batch_size: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if dtype is not None and dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {list(DTYPES)}, got {dtype!r}")
        if not str(batch_size).isdecimal():
            raise ValueError(f"batch_size must be a number, got {batch_size!r}")
        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.backbone = load(
            checkpoint,
            device=where,
            dtype=DTYPES[dtype] if dtype else None,
            history=trained_history(checkpoint),
        )
        self.codec = load_tokenizer(tokenizer or checkpoint)
        self.codec.check_model(self.backbone.mask_id, self.backbone.vocab_size)
        self.tokenizer = self.codec.inner
        self.likelihood = Likelihood(mc_num=mc_num, cfg=float(cfg), seed=seed)
        values = {"policy": policy, "settings": settings, "max_steps": steps, "seed": seed}
        self.decoder: Decoder = from_mapping(
            Decoder, values | {"batch_size": int(batch_size)}, "model_args"
        )
        fit_to_masks(self.decoder, gen_length or GEN_LENGTH)
        self._gen_length, self._bos = gen_length, bos

    @property
    def eot_token_id(self) -> int:
        if self.codec.eos_id is None:
            raise ValueError(f"tokenizer {self.codec.name} has no EOS token")
        return self.codec.eos_id

    @property
    def tokenizer_name(self) -> str:
        return self.codec.name.replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        bos = self._bos if add_special_tokens is None else add_special_tokens
        return self.codec.encode_prompt(string, chat=False, bos=bos)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        if add_generation_prompt:
            return self.codec.render(chat_history)
        return self.codec.render_open(chat_history)

    def _loglikelihood_tokens(
        self, requests: Sequence[Any], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """The bound of `likelihood.py`; never `is_greedy`, which would cost a decode each."""
        found = []
        for (context, _), prefix, target in tqdm(requests, disable=disable_tqdm):
            check_room(len(prefix), len(target), self.backbone.max_length, repr(context[:60]))
            value = log_likelihood(
                self.backbone, prefix, target, self.likelihood, batch_size=self.decoder.batch_size
            )
            found.append((value, False))
        return found

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        raise NotImplementedError(
            "remask does not score whole documents (loglikelihood_rolling): a mask diffusion model "
            "has no left-to-right perplexity; choose tasks by loglikelihood or generate_until"
        )

    def generate_until(
        self, requests: "Sequence[Instance]", disable_tqdm: bool = False
    ) -> list[str]:
        answers: dict[int, str] = {}
        asked = [_wishes(request.args, self._gen_length) for request in requests]
        for length in sorted({gen_length for _, gen_length, _ in asked}):
            rows = [i for i, one in enumerate(asked) if one[1] == length]
            prompts = [self.tok_encode(asked[i][0]) for i in rows]
            for prompt, i in zip(prompts, rows, strict=True):
                check_room(len(prompt), length, self.backbone.max_length, repr(asked[i][0][:60]))
            decoder = fit_to_masks(self.decoder, length)
            found = generate(self.backbone, prompts, length, decoder, row_ids=rows)
            for i, answer in zip(rows, found, strict=True):
                answers[i] = self.codec.decode_answer(answer.ids, asked[i][2])
        return [answers[i] for i in range(len(asked))]


def _wishes(args: tuple[Any, ...], gen_length: int | None) -> tuple[str, int, list[str]]:
    """The prompt, the tokens of its answer and its stops, from a task's request."""
    context, wishes = args
    stops = wishes.get("until") or []
    length = gen_length or wishes.get("max_gen_toks") or GEN_LENGTH
    return context, int(length), [stops] if isinstance(stops, str) else list(stops)
