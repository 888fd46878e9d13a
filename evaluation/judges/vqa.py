"""VQAScore: the probability that a visual question answering model says "yes" about a picture.

The model is any that transformers loads as image-text-to-text. Its weights must be safetensors, and
no code from its folder is run.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from remask.models.checkpoints.hub_name import is_hub_name
from remask.models.checkpoints.shipped import checkpoint_folder
from remask.pipeline.edits.images import Picture
from remask.pipeline.runtime.storage import absolute_if_here, file_hash

ANSWERS = ("Yes", "yes", " Yes", " yes")


@dataclass(frozen=True, kw_only=True)
class VqaConfig:
    """The model that is asked, and the question."""

    model: str
    """Folder, or hub name: `hf:owner/name@revision`, or `owner/name` as transformers reads it."""
    question: str = "Was this image edited as follows: {instruction}? Please answer yes or no."
    """The question, put into the model's chat template if it has one. Otherwise the question is
    the whole prompt, and must contain the model's image placeholder."""

    def __post_init__(self) -> None:
        if "{instruction}" not in self.question:
            raise ValueError(f"vqa.question must contain {{instruction}}, got {self.question!r}")

    def with_absolute_paths(self) -> "VqaConfig":
        return replace(self, model=absolute_if_here(self.model))

    @property
    def place(self) -> str:
        """The model as transformers takes it: a folder, or a name of its own."""
        return str(checkpoint_folder(self.model)) if is_hub_name(self.model) else self.model

    def check(self) -> None:
        """Raise ValueError if there is no such model, before anything is decoded."""
        from transformers import AutoConfig

        with _loading(self.model):
            AutoConfig.from_pretrained(self.place, trust_remote_code=False)

    def identity(self) -> dict[str, Any]:
        """Everything that the scores depend on; a folder counts by its config and the sizes of its
        weights."""
        folder = Path(self.place)
        if not folder.is_dir():
            return {"model": self.model, "question": self.question}
        sizes = {p.name: p.stat().st_size for p in sorted(folder.glob("*.safetensors"))}
        config = file_hash(str(folder / "config.json"))
        return {"config": config, "weights": sizes, "question": self.question}


def vqa_scores(
    config: VqaConfig, pictures: Sequence[Picture], instructions: Sequence[str]
) -> list[float]:
    """p("yes") for each picture with its instruction."""
    processor, model = _load(config.place)
    answers = _answer_ids(processor.tokenizer)
    return [
        _ask(processor, model, answers, picture, config.question.replace("{instruction}", text))
        for picture, text in zip(pictures, instructions, strict=True)
    ]


@torch.inference_mode()
def _ask(processor: Any, model: Any, answers: list[int], picture: Picture, text: str) -> float:
    image = Image.fromarray(picture)
    if processor.chat_template is not None:  # adds the special tokens itself
        content = [{"type": "image", "image": image}, {"type": "text", "text": text}]
        inputs = processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
    else:
        inputs = processor(images=image, text=text, return_tensors="pt")
    inputs = inputs.to(model.device)
    if model.config.is_encoder_decoder:
        start = model.config.get_text_config().decoder_start_token_id
        inputs["decoder_input_ids"] = torch.tensor([[start]], device=model.device)
    probabilities = model(**inputs).logits[0, -1].float().softmax(-1)
    return float(probabilities[answers].sum())


def _answer_ids(tokenizer: Any) -> list[int]:
    """The single tokens that spell yes."""
    spelled = [tokenizer(x, add_special_tokens=False)["input_ids"] for x in ANSWERS]
    single = {ids[0] for ids in spelled if len(ids) == 1}
    known = sorted(single - {tokenizer.unk_token_id})
    if not known:
        raise ValueError('the VQA model\'s tokenizer has no token for "yes"')
    return known


@functools.lru_cache(maxsize=1)
def _load(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model: Any
    with _loading(name):
        processor = AutoProcessor.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForImageTextToText.from_pretrained(
            name, trust_remote_code=False, use_safetensors=True
        )
    return processor, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"cannot load the VQA model {name}: {reason}") from error
