"""How a model decodes samples: a policy by name, with its settings and its budget of steps."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor

from remask.models import Backbone, Guidance, Policy, Revision, revise
from remask.models.config import from_mapping
from remask.models.decoding import POLICIES

MAX_STEPS = 32


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """One way to decode. `preset: released` is as the authors' code for image edits does it; for
    text that is a preset of the policy's settings."""

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
    """Of the policy: {margin: 0.5} for revision, {kind: conf} for remdm."""
    guidance: Guidance | None = None
    """Of image edits: {text: 2.5, image: 4.0}."""
    max_steps: int | None = None
    """Steps at most; the suite's own number when none, or else 32."""
    start: Literal["given", "oracle", "blank"] = "given"
    """`given` starts from the sample as it is; `oracle` is told where it is wrong, and starts with
    those positions masked; `blank` starts with all masked, and of an image edit has the source
    picture in its prompt instead."""
    seed: int = 0
    batch_size: int = 128
    """Samples decoded at once; changes nothing that comes out."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"policy must be one of {list(POLICIES)}, got {self.policy!r}")
        for name in ("max_steps", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must lie in 0 .. 2^63 - 1, got {self.seed}")
        self.make_policy()

    @property
    def steps(self) -> int:
        """max_steps, or 32 where neither decoder nor suite says."""
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
        """`models.revise` by these settings; `is_token` is false at padding, bool [B, N]."""
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
