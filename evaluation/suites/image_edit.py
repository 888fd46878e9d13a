"""Image editing: is what should change changed, and everything else left alone? SPEC §7.

A sample is a held-out pair. A reviser gets the source picture in its canvas; a model that fills in
masks gets it in its prompt, with an empty canvas. Pictures are compared with the tokeniser's
reconstruction of the source, so that the tokeniser's own losses do not count as edits
(`evaluation/judges/image_metrics.py`). The figures are `image_edit_scores.py`.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from remask.evaluation.decode.canvas import decode_canvas, read_pairs
from remask.evaluation.decode.paths import Paths, path_columns
from remask.evaluation.decoder import Decoder
from remask.evaluation.judges.image_metrics import (
    EditMeasures,
    changed_pixels,
    check_installed,
    measure,
)
from remask.evaluation.judges.vqa import VqaConfig, vqa_scores
from remask.evaluation.player import PlayerSample
from remask.evaluation.stats.scores import AS_GIVEN
from remask.evaluation.suite import Outcome, Score, left_out, with_left_out
from remask.evaluation.suites.image_edit_scores import (
    BACKGROUND,
    GLOSSARY,
    IDEAL,
    MEASURES,
    PREDICTIONS,
    image_edit_scores,
)
from remask.evaluation.suites.image_edit_showcase import draw_edit, read_edit
from remask.models import Backbone
from remask.models.ranges import Range, check_fields
from remask.pipeline.edits import EditPair
from remask.pipeline.edits.images import Picture, Region
from remask.pipeline.runtime.places import without_places
from remask.pipeline.sources.image_edit import ImageEditSource

SHOWN = 6
"""Number of samples in the showcase: the first ones, so that all runs show the same."""
MAX_STATES = 17
"""Limit on the states of a sample in the showcase; longer decodes are thinned out evenly."""
CODES = np.uint16
"""Type of the tokens in predictions: a code plus 1; 0 is MASK."""
SIDES = ("source", "target")


@dataclass(frozen=True, kw_only=True)
class ImageEditSuite:
    """Held-out edits."""

    kind: ClassVar[str] = "image_edit"
    version: ClassVar[int] = 3
    glossary: ClassVar[Mapping[str, str]] = GLOSSARY
    outcome: ClassVar[Outcome] = Outcome(
        metric="success",
        samples="edits",
        success="succeed",
        before=AS_GIVEN,
    )

    edits: ImageEditSource
    """Pairs, tokeniser and text as in the recipe that built the training data. `source_in` is
    ignored: the decoder decides where the source picture goes."""
    samples: Annotated[int | None, Range("[1, inf)")] = None
    """Number of held-out pairs. Defaults to all."""
    threshold: Annotated[float, Range("(0, 1]")] = 0.1
    """Share of a channel's range by which a pixel must differ to count as changed."""
    success_at: Annotated[float, Range("(0, 1]")] = 0.9
    """An edit succeeds if at least this share of the asked pixels agrees with the target. A no-op
    edit succeeds if no pixel changes."""
    reference: Literal["reconstruction", "original"] = "reconstruction"
    """Whether edits are compared with the tokeniser's reconstructions or the original pictures."""
    zone: Literal["pixels", "cells"] = "pixels"
    """Whether precision and background refer to the region itself or to all cells of the tokeniser
    that overlap it; no edit can change less than a cell."""
    vqa: VqaConfig | None = None
    """A model that is asked whether the edit was made. Defaults to none."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def num_samples(self) -> int:
        held_out = self.edits.num_records().get("held_out", 0)
        if held_out < (self.samples or 1):
            raise ValueError(
                f"there are {held_out} held-out pairs, {self.samples or 1} are asked for"
            )
        return self.samples or held_out

    def identity(self) -> dict[str, Any]:
        values = without_places(self)
        # Predictions are stored under a digest of these keys, so no key is renamed.
        values["found"] = [self.edits.tokenizer_hash(), self.edits.data_hash()]
        values["vqa"] = self.vqa.identity() if self.vqa else None
        del values["edits"]["source_in"]
        return values

    def with_absolute_paths(self) -> "ImageEditSuite":
        vqa = self.vqa and self.vqa.with_absolute_paths()
        return dataclasses.replace(self, edits=self.edits.with_absolute_paths(), vqa=vqa)

    def check(self, backbone: Backbone) -> None:
        check_installed()
        if self.vqa is not None:
            self.vqa.check()
        self.edits.check_model(backbone)
        num_codes = self.edits.layout.image.num_codes
        if num_codes > np.iinfo(CODES).max:
            raise ValueError(
                f"the image suite takes tokenisers of at most {np.iinfo(CODES).max} codes, got "
                f"{num_codes}"
            )

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        edits = dataclasses.replace(
            self.edits, source_in="canvas" if decoder.start == "given" else "prompt"
        )
        reasons: list[str] = []
        usable = read_pairs(edits, samples, backbone.max_length, reasons)
        if not usable:
            return with_left_out(PREDICTIONS.empty_table(), reasons)
        revision = decode_canvas(backbone, edits, usable, decoder)
        pairs = [x.pair for x in usable]
        source, target = [x.source for x in usable], [x.target for x in usable]
        final = zip(revision.trajectory[-1], target, strict=True)
        edited = self.edits.decode([x[: y.numel()].view_as(y) - 1 for x, y in final])
        compared = self._compared(pairs, (source, target))
        measures, ideal = (self._measure(pairs, x, compared) for x in (edited, compared[1]))
        answers: list[float | None] = [None] * len(pairs)
        if self.vqa is not None:
            answers = [*vqa_scores(self.vqa, edited, [pair.instruction for pair in pairs])]
        edit_mask = revision.edit_mask().numpy().astype(np.uint8)
        solution, start = ([x.flatten() + 1 for x in codes] for codes in (target, source))
        table = pa.table(
            {
                "sample_id": [pair.pair_id for pair in pairs],
                "number": [x.number for x in usable],
                "edit": [pair.kind for pair in pairs],
                "instruction": [pair.instruction for pair in pairs],
                **path_columns(solution, start, revision, CODES),
                "edit_mask": [
                    x[: len(y)].tobytes() for x, y in zip(edit_mask, solution, strict=True)
                ],
                **{f.name: [getattr(m, f.name) for m in measures] for f in MEASURES},
                **{
                    name: [getattr(m, x) for m in ideal]
                    for name, x in zip(IDEAL, BACKGROUND, strict=True)
                },
                "vqa": answers,
            },
            schema=PREDICTIONS,
        )
        return with_left_out(table, reasons)

    def score(self, predictions: pa.Table) -> list[Score]:
        if not len(predictions):
            raise ValueError(
                f"none of the {self.num_samples} held-out pairs can be used; the first: "
                f"{left_out(predictions)[0]}"
            )
        return image_edit_scores(
            predictions,
            Paths.read(predictions, CODES),
            success_at=self.success_at,
            num_samples=self.num_samples,
        )

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        paths = Paths.read(predictions, CODES)
        return [self._shown(predictions, paths, i) for i in range(min(SHOWN, len(predictions)))]

    @classmethod
    def player_sample(cls, sample: dict[str, Any]) -> PlayerSample:
        return read_edit(sample)

    def _compared(
        self, pairs: list[EditPair], codes: tuple[list[Tensor], list[Tensor]]
    ) -> list[list[Picture]]:
        """The source and target pictures that edits are compared with."""
        if self.reference == "reconstruction":
            return [self.edits.decode(x) for x in codes]
        return [[getattr(pair, x) for pair in pairs] for x in SIDES]

    def _measure(
        self, pairs: list[EditPair], edited: list[Picture], compared: list[list[Picture]]
    ) -> list[EditMeasures]:
        return [
            measure(
                edit,
                source,
                target,
                *self._regions(pair),
                patch=self.edits.patch if self.zone == "cells" else 1,
                threshold=self.threshold,
            )
            for pair, edit, source, target in zip(pairs, edited, *compared, strict=True)
        ]

    def _regions(self, pair: EditPair) -> tuple[Region, Region]:
        """The region where the edit belongs, and its pixels that differ in the target."""
        differs = changed_pixels(pair.target, pair.source, self.threshold)
        return (differs, differs) if pair.region is None else (pair.region, pair.region & differs)

    def _shown(self, predictions: pa.Table, paths: Paths, row: int) -> dict[str, Any]:
        facts = {name: predictions[name][row].as_py() for name in ("number", "edit", "agreement")}
        pair = self.edits.pairs.pair("held_out", facts["number"])
        length, last = paths.lengths[row], paths.steps[row]
        kept = np.unique(np.linspace(0, last, MAX_STATES).round().astype(int))
        states = paths.states[kept, row, :length]
        size = self.edits.grid(pair.source)
        grid = torch.from_numpy(states.astype(np.int64)).view(-1, *size)
        edit_mask = np.frombuffer(predictions["edit_mask"][row].as_py(), np.uint8).reshape(size)
        agreement = facts["agreement"]
        outcome = "nothing to change" if math.isnan(agreement) else f"{agreement:.0%} as the target"
        return {
            "sample_id": pair.pair_id,
            "instruction": pair.instruction,
            "note": f"{pair.instruction}; {outcome}",
            "solution": paths.solution[row, :length].tolist(),
            "states": states.tolist(),
            **draw_edit(
                pair,
                steps=self.edits.decode([*(grid - 1).clamp(min=0)]),
                is_masked=(grid == 0).numpy(),
                remasked=edit_mask > 0,
                source=self.edits.decode(self.edits.encode([pair.source]))[0],
            ),
        }
