"""The model card on the hub: the card that training wrote, with the header that the hub reads."""

from dataclasses import dataclass
from typing import Any

import yaml

from remask.pipeline.runtime.plain_yaml import write_yaml

TAGS = ["remask", "mask-diffusion", "reflective-masking"]
_FENCE = "---\n"


@dataclass(frozen=True)
class Facts:
    """What a card's header says about a model."""

    repo: str
    """owner/name that it is uploaded to."""
    task: str | None
    """The hub's name of what it does, such as text-generation; None if the hub has none."""
    base: str | None
    """owner/name of the model that it was made from, if that is on the hub."""
    is_adapter: bool
    license: str | None
    """The hub's name of its licence, such as apache-2.0; None if it is not known."""

    def header(self) -> dict[str, Any]:
        values = {
            "library_name": "remask",
            "pipeline_tag": self.task,
            "base_model": self.base,
            "base_model_relation": self.base and ("adapter" if self.is_adapter else "finetune"),
            "license": self.license,
            "tags": TAGS,
        }
        return {key: value for key, value in values.items() if value is not None}


def make_card(text: str, facts: Facts) -> str:
    """A card with a header and a line that loads the model.

    Keys of a header that the text has are kept, except for a licence that the facts name.

    Raises ValueError if the header of the text is not YAML.
    """
    own, text = _split(text)
    given = {"license": facts.license} if facts.license else {}
    header = facts.header() | own | given
    text = text.strip() or f"# {facts.repo.rpartition('/')[2]}\n\nTrained with remask."
    if f"hf:{facts.repo}" not in text:
        text += f'\n\n## Use\n\n```python\nmodel = remask.load("hf:{facts.repo}")\n```'
    return f"{_FENCE}{write_yaml(header)}{_FENCE}{text}\n"


def _split(text: str) -> tuple[dict[str, Any], str]:
    """The header of a card, and the rest."""
    if not text.startswith(_FENCE):
        return {}, text
    header, fence, rest = text.removeprefix(_FENCE).partition(f"\n{_FENCE}")
    try:
        values = yaml.safe_load(header) if fence else None
    except yaml.YAMLError:
        values = None
    if not isinstance(values, dict):
        raise ValueError("README.md begins with a header (---) that is not YAML; correct it")
    return values, rest
