"""Checkpoints in lm-evaluation-harness, as the model `remask`: its tasks with our decoders.

Importing this module registers the model; `remask harness` (`infra/harness.py`) does so and then
runs the harness's own command.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from remask.evaluation.decode.generation import fit_to_masks, generate
from remask.evaluation.decode.likelihood import Likelihood, log_likelihood
from remask.evaluation.decoder import TUNED, Decoder, resolve
from remask.models import load
from remask.models.checkpoints.checkpoint import trained_history
from remask.models.checkpoints.decoding_file import read_decoding
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
        checkpoint: Folder of the checkpoint.
        tokenizer: Folder of the tokenizer. Defaults to the checkpoint's own.
        policy: Decoder of the answers: revision, tuned, absorbing, remdm or p2.
        gen_length: Tokens of an answer. Defaults to the task's number, or to 256.
        steps: Limit on the forward passes. Defaults to one per token.
        mc_num: Number of mask draws for a likelihood.
        cfg: Classifier-free guidance of likelihoods.
        seed: Seed of all random draws.
        bos: Begin prompts with the tokenizer's BOS token.
        batch_size: Rows per batch.
        device: Device to run on. Defaults to a GPU if there is one.
        dtype: float32, bfloat16 or float16. Defaults to that of the checkpoint.
        max_batch_size: Ignored; the harness always passes it.
        settings: Settings of the policy, such as reveal_count=2 or block_length=32.
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
        self.backbone = load(
            checkpoint,
            device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
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
        self._tuned = read_decoding(checkpoint) if policy == TUNED else None
        self._fitted(gen_length or GEN_LENGTH)  # refuses a decoder that reveals all at once
        self._gen_length, self._bos = gen_length, bos

    @property
    def eot_token_id(self) -> int:
        if self.codec.eos_id is None or self.codec.eos_id >= self.backbone.vocab_size:
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
        """The lower bound of `likelihood.py`, and false for `is_greedy`, which would need a decode
        per request."""
        results = []
        for (context, _), prefix, target in tqdm(requests, disable=disable_tqdm):
            check_room(len(prefix), len(target), self.backbone.max_length, repr(context[:60]))
            value = log_likelihood(
                self.backbone, prefix, target, self.likelihood, batch_size=self.decoder.batch_size
            )
            results.append((value, False))
        return results

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        raise NotImplementedError(
            "remask does not score whole documents (loglikelihood_rolling): a mask diffusion model "
            "has no left-to-right perplexity; choose tasks by loglikelihood or generate_until"
        )

    def generate_until(
        self, requests: "Sequence[Instance]", disable_tqdm: bool = False
    ) -> list[str]:
        answers: dict[int, str] = {}
        wanted = [_read_request(request.args, self._gen_length) for request in requests]
        for length in sorted({request.gen_length for request in wanted}):
            rows = [i for i, request in enumerate(wanted) if request.gen_length == length]
            prompts = [self.tok_encode(wanted[i].context) for i in rows]
            for prompt, i in zip(prompts, rows, strict=True):
                check_room(
                    len(prompt), length, self.backbone.max_length, repr(wanted[i].context[:60])
                )
            decoder = self._fitted(length)
            decoded = generate(self.backbone, prompts, length, decoder, row_ids=rows)
            for i, answer in zip(rows, decoded, strict=True):
                answers[i] = self.codec.decode_answer(answer.ids, wanted[i].stops)
        return [answers[i] for i in range(len(wanted))]

    def _fitted(self, gen_length: int) -> Decoder:
        """The decoder for answers of a length."""
        return resolve(self.decoder, self._tuned, lambda x: fit_to_masks(x, gen_length))


@dataclass(frozen=True)
class _Request:
    """A task's request for an answer."""

    context: str
    gen_length: int
    stops: list[str]


def _read_request(args: tuple[Any, ...], gen_length: int | None) -> _Request:
    context, settings = args
    stops = settings.get("until") or []
    length = gen_length or settings.get("max_gen_toks") or GEN_LENGTH
    return _Request(context, int(length), [stops] if isinstance(stops, str) else list(stops))
