"""A loaded checkpoint that revises what people give it: boards, text or pictures.

    reviser = remask.open_reviser("runs/sums/her-0/model")     # or a shipped model's name
    start = reviser.start({"prompt": "8+3-4+2:", "draft": "8+3=9;9-4=6;6+2=8"})
    record = reviser.revise(start, Options(margin=0.5))
    record.result, record.steps[0].cells, record.to_json()

`remask revise`, `remask chat` and `remask demo` are made of this. The result is exactly that of
`remask.revise` on the same tokens.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remask.infra.options import MAX_STEPS, Options
from remask.infra.record import Record, Step, make_record, make_step
from remask.infra.watched import watched
from remask.models import (
    Action,
    Backbone,
    HistoryConfig,
    Observation,
    Policy,
    RevisionPolicy,
    load,
    revise,
)
from remask.models.checkpoints.checkpoint import trained_history
from remask.models.checkpoints.decoding_file import TunedDecoding, read_decoding
from remask.models.checkpoints.shipped import is_shipped, shipped_names
from remask.models.config import from_mapping
from remask.models.decoding import POLICIES
from remask.pipeline.inputs.image_edit import EditReader
from remask.pipeline.inputs.reader import Kind, Reader, Start
from remask.pipeline.inputs.registry import open_reader

FILL_STEPS = 16
"""Default limit of steps in which an empty canvas is filled."""
PACE = 0.5
"""Share of the steps over which the printed rule spreads its reveals where all is masked."""
SHIPPED: dict[str, str] = {"sudoku": "sudoku", "text": "sums", "image_edit": "emoji"}
"""The shipped model of each kind."""


class Reviser:
    """A loaded checkpoint of one kind.

    Args:
        name: What the checkpoint is called in records.
        backbone: The model.
        reader: Reads its inputs.
        tuned: Settings that were tuned for it.
    """

    def __init__(
        self, name: str, backbone: Backbone, reader: Reader, tuned: TunedDecoding | None = None
    ) -> None:
        self.name, self.backbone, self.reader, self.tuned = name, backbone, reader, tuned

    @property
    def kind(self) -> Kind:
        return self.reader.kind

    def start(self, request: Mapping[str, Any]) -> Start:
        """Read a request; ValueError, in one sentence, if it is wrong.

        Args:
            request: {"board": ..., "editable": ...}, {"prompt": ..., "draft": ..., "length": ...}
                or {"picture": bytes, "instruction": ...}; editable, draft and length are optional.
        """
        return self.reader.start(request)

    def revise(
        self,
        start: Start,
        options: Options | None = None,
        watch: Callable[[Step], None] | None = None,
    ) -> Record:
        """Decode from a start.

        Args:
            start: What `start` returned.
            options: How to decode.
            watch: Called with every step as it is taken, the start first; a closing step alone is
                seen in the record only. Steps are without pictures.
        """
        options = options or Options()
        policy, max_steps, notes = self.plan(start, options)
        return self.decode(
            start,
            policy,
            max_steps,
            history=options.history,
            seed=options.seed,
            notes=notes,
            watch=watch,
        )

    def decode(
        self,
        start: Start,
        policy: Policy,
        max_steps: int,
        *,
        history: bool = True,
        seed: int = 0,
        notes: Sequence[str] = (),
        watch: Callable[[Step], None] | None = None,
    ) -> Record:
        """Decode by any policy; `notes` become part of the record's."""
        beliefs: list[Tensor] = []

        def see(observation: Observation, remask: Tensor, reveal: Tensor) -> None:
            log_probs = observation.beliefs.mask_log_prob[0].cpu()
            beliefs.append(log_probs.exp().masked_fill(log_probs == -math.inf, math.nan))
            if watch is not None:
                watch(_next_step(self.reader, start, observation, remask, reveal))

        if watch is not None:
            watch(make_step(self.reader, start, start.tokens, None, None))
        revision = revise(
            self.backbone,
            start.tokens[None],
            start.editable[None],
            history=self.history(history),
            policy=watched(policy, see),
            max_steps=max_steps,
            seed=seed,
        )
        return make_record(
            self.reader, self.name, start, revision, beliefs, self.backbone.mask_id, notes
        )

    def history(self, is_on: bool) -> HistoryConfig:
        """The model's history settings, or the same without past states."""
        own = self.backbone.history
        return own if is_on else dataclasses.replace(own, variant="none")

    def plan(self, start: Start, options: Options) -> tuple[Policy, int, list[str]]:
        """The policy for a start, its limit of steps, and notes for people."""
        if isinstance(self.reader, EditReader) and self.reader.source.source_in == "prompt":
            return self._plan_filling(options)
        if options.policy != RevisionPolicy.name:
            policy = from_mapping(POLICIES[options.policy], {}, options.policy)
            return policy, options.max_steps or MAX_STEPS, []
        settings, max_steps, notes = self._tuned_settings(start, options)
        given = {"margin": options.margin, "reveal_within": options.pace}
        settings |= {name: value for name, value in given.items() if value is not None}
        policy: RevisionPolicy = from_mapping(RevisionPolicy, settings, "revision settings")
        spreads = start.is_blank and self.kind != "sudoku" and options.pace is None
        if spreads and policy.reveals_all(max_steps):
            policy = dataclasses.replace(policy, reveal_within=PACE)
        return policy, max_steps, notes

    @staticmethod
    def _plan_filling(options: Options) -> tuple[Policy, int, list[str]]:
        """The policy for an empty canvas, which a model that does not revise fills in."""
        if options.margin is not None or options.pace is not None:
            raise ValueError("this model fills an empty canvas, which takes no margin and no pace")
        name = "absorbing" if options.policy == RevisionPolicy.name else options.policy
        policy = from_mapping(POLICIES[name], {}, name)
        note = f"this model fills an empty canvas, by policy {name}"
        return policy, options.max_steps or FILL_STEPS, [note]

    def _tuned_settings(
        self, start: Start, options: Options
    ) -> tuple[dict[str, Any], int, list[str]]:
        """Settings that were tuned for such a start within the limit of steps, if there are any."""
        limit = options.max_steps or MAX_STEPS
        if options.margin is not None or options.pace is not None:
            return {}, limit, []
        begins = "blank" if start.is_blank and self.kind != "sudoku" else "given"
        if self.tuned is None or self.tuned.start != begins:
            return {}, limit, []
        choice = self.tuned.within(limit)
        if choice is None:
            return {}, limit, []
        trial = choice.trial
        shown = ", ".join(f"{name} {value}" for name, value in trial.settings.items())
        note = f"settings tuned for {choice.budget} passes: {shown}, {trial.max_steps} steps"
        return dict(trial.settings), trial.max_steps, [note]


def open_reviser(checkpoint: str | None = None, kind: str | None = None) -> Reviser:
    """Load a checkpoint and what reads its inputs.

    Args:
        checkpoint: Folder or name of a model. Defaults to the shipped model of the kind.
        kind: The kind of input, sudoku, text or image_edit, that the model must take. Defaults to
            the checkpoint's, or to sudoku if none is given.

    Raises:
        ValueError: There is no such checkpoint, it takes another kind of input, or its tokenizer
            does not fit.
    """
    if kind is not None and kind not in SHIPPED:
        raise ValueError(f"kind must be one of {list(SHIPPED)}, got {kind!r}")
    checkpoint = checkpoint or shipped_model(kind or "sudoku")
    backbone = load(
        checkpoint,
        device="cuda" if torch.cuda.is_available() else "cpu",
        history=trained_history(checkpoint),
    )
    reader = open_reader(checkpoint, backbone)
    if kind is not None and reader.kind != kind:
        raise ValueError(
            f"{checkpoint} takes inputs of kind {reader.kind}, not {kind}; name another "
            "checkpoint, or none for the shipped one"
        )
    return Reviser(_name_of(checkpoint), backbone, reader, read_decoding(checkpoint))


def shipped_model(kind: str) -> str:
    """Name of the shipped model of a kind; ValueError if this installation has none."""
    name = SHIPPED[kind]
    if name not in shipped_names():
        raise ValueError(f"no {kind} model comes with this installation; name a checkpoint")
    return name


def _name_of(checkpoint: str) -> str:
    """What people call a checkpoint: the run's name rather than `model`."""
    if is_shipped(checkpoint):
        return checkpoint
    path = Path(checkpoint).absolute()
    return path.parent.name if path.name == "model" and path.parent.name else path.name


def _next_step(
    reader: Reader, start: Start, observation: Observation, remask: Tensor, reveal: Tensor
) -> Step:
    """The state that a decision leads to, in a batch of one row."""
    revealed = torch.where(reveal, observation.beliefs.candidate, observation.tokens)
    state = torch.where(remask, observation.mask_id, revealed)[0]
    actions = torch.where(observation.is_masked, Action.WAIT, Action.KEEP)
    actions[remask] = Action.REMASK
    actions[reveal] = Action.REVEAL
    return make_step(reader, start, state.cpu(), actions[0].cpu(), None)
