"""How a model decodes samples: a policy by name, with its settings and a limit on its steps."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from torch import Tensor

from remask.models import Backbone, Guidance, Policy, Revision, RevisionPolicy, revise
from remask.models.checkpoints.decoding_file import TunedDecoding
from remask.models.config import from_mapping
from remask.models.decoding import POLICIES
from remask.models.ranges import Range, check_fields

MAX_STEPS = 32
"""Limit on the steps if neither the decoder nor the suite sets one."""
TUNED = "tuned"
"""Name of the revision rule with the settings that were tuned for the checkpoint."""


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
    """Name of a registered policy: revision, absorbing, remdm, p2 or two_phase. `tuned` is revision
    with the settings that `remask tune` chose for the largest budget of at most max_steps + 1
    passes; a checkpoint without such settings is decoded by the printed rule."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the policy: {margin: 0.5} for revision, {kind: conf} for remdm. With `tuned` they
    take precedence over the tuned ones."""
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
        if self.policy not in (*POLICIES, TUNED):
            known = [*POLICIES, TUNED]
            raise ValueError(f"policy must be one of {known}, got {self.policy!r}")
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
        kind = RevisionPolicy if self.policy == TUNED else POLICIES[self.policy]
        return from_mapping(kind, self.settings, f"{self.policy} settings")


def resolve(
    decoder: Decoder,
    tuned: TunedDecoding | None,
    adapt: Callable[[Decoder], Decoder] = lambda decoder: decoder,
) -> Decoder:
    """The decoder for one checkpoint and suite, with a policy that is registered.

    Args:
        decoder: The decoder as the recipe has it.
        tuned: What was tuned for the checkpoint; None if nothing was.
        adapt: Fills in the settings that the suite decides; see `AdaptsDecoders`.
    """
    adapted = adapt(decoder)
    if decoder.policy != TUNED:
        return adapted
    choice = None if tuned is None else tuned.within(adapted.steps)
    if choice is None:
        return replace(adapted, policy=RevisionPolicy.name)
    trial = choice.trial
    return adapt(
        replace(
            decoder,
            policy=RevisionPolicy.name,
            settings=trial.settings | decoder.settings,
            max_steps=trial.max_steps,
        )
    )
