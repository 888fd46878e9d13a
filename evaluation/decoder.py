"""How a model decodes samples: a policy by name, with its settings and a limit on its steps."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from torch import Tensor

from remask.models import Backbone, Guidance, Policy, Revision, revise
from remask.models.config import from_mapping
from remask.models.decoding import POLICIES
from remask.models.ranges import Range, check_fields

MAX_STEPS = 32
"""Limit on the steps if neither the decoder nor the suite sets one."""


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """One way to decode. `preset: released` follows the authors' code for image edits; for text,
    `released` is a preset of the policy's settings."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"policy": "revision"},
        "released": {
            "policy": "two_phase",
            "max_steps": 16,
            "guidance": {"text": 4.0, "at": "masked"},
        },
    }

    policy: str = "revision"
    """Name of a registered policy: revision, absorbing, remdm, p2 or two_phase."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the policy: {margin: 0.5} for revision, {kind: conf} for remdm."""
    guidance: Guidance | None = None
    """Guidance of image edits, such as {text: 2.5, image: 4.0}. Defaults to none."""
    max_steps: Annotated[int | None, Range("[1, inf)")] = None
    """Limit on the steps. Defaults to the suite's limit, or to 32 if it has none."""
    start: Literal["given", "oracle", "blank"] = "given"
    """The first state. `given` is the sample as it is; `oracle` masks exactly the wrong positions;
    `blank` masks every position, and an image edit then has its source picture in the prompt."""
    seed: Annotated[int, Range("[0, 2^63)")] = 0
    batch_size: Annotated[int, Range("[1, inf)")] = 128
    """Samples decoded at once; has no effect on the results."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.policy not in POLICIES:
            raise ValueError(f"policy must be one of {list(POLICIES)}, got {self.policy!r}")
        self.make_policy()  # checks the settings

    @property
    def steps(self) -> int:
        """max_steps, or 32 if neither the decoder nor the suite sets it."""
        return self.max_steps or MAX_STEPS

    def revise(
        self,
        backbone: Backbone,
        tokens: Tensor,
        editable: Tensor | None = None,
        *,
        is_token: Tensor | None = None,
        row_ids: Tensor | None = None,
    ) -> Revision:
        """Run `models.revise` with these settings; `is_token` is false at padding, bool [B, N]."""
        has_padding = is_token is not None and not bool(is_token.all())
        return revise(
            backbone,
            tokens,
            editable,
            policy=self.make_policy(),
            guidance=self.guidance,
            max_steps=self.steps,
            attention_mask=is_token if has_padding else None,
            seed=self.seed,
            row_ids=row_ids,
            batch_size=self.batch_size,
        )

    def make_policy(self) -> Policy:
        return from_mapping(POLICIES[self.policy], self.settings, f"{self.policy} settings")
