"""Image editing: is what should change changed, and all else left alone? SPEC §7.

A sample is a held-out pair. A reviser is given the source picture in its canvas; a model that fills
in masks is given it in its prompt, and an empty canvas. Pictures are compared with what the
tokeniser makes of the source, so that its own losses are no edits
(`evaluation/judges/image_metrics.py`).
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from remask.evaluation.decode.paths import Bools, Paths, path_columns, stack
from remask.evaluation.decoder import Decoder
from remask.evaluation.judges.image_metrics import (
    EditMeasures,
    changed_pixels,
    check_installed,
    measure,
)
from remask.evaluation.judges.vqa import VqaConfig, vqa_scores
from remask.evaluation.report.gallery import draw_edit
from remask.evaluation.stats.scores import mean, ratio, share, what_revision_did
from remask.evaluation.suite import Score, left_out, register, with_left_out
from remask.models import Backbone, Revision
from remask.pipeline.edits import EditPair
from remask.pipeline.edits.images import Picture, Region
from remask.pipeline.format.examples import pad
from remask.pipeline.runtime.places import without_places
from remask.pipeline.sources.image_edit import SAME_TOKENS, ImageEditSource

SHOWN = 6
"""Samples of a run in the report: the first, so that runs show the same."""
MOST_STATES = 17
"""Of a sample in the report; of longer decodes, some of them."""
CODES = np.uint16
"""Of codes in predictions, each plus 1; 0 is MASK."""


@register
@dataclass(frozen=True, kw_only=True)
class ImageEditSuite:
    """Held-out edits."""

    kind: ClassVar[str] = "image_edit"
    version: ClassVar[int] = 3

    edits: ImageEditSource
    """Pairs, tokeniser and text as in the recipe that the data were built by; where the source
    picture lies is the decoder's to say."""
    samples: int | None = None
    """How many of the held-out pairs; all when none."""
    threshold: float = 0.1
    """Share of a channel's range beyond which a pixel is changed."""
    success_at: float = 0.9
    """An edit succeeds where at least this share of what is asked for agrees with the target; one
    of nothing, where nothing changes."""
    reference: Literal["reconstruction", "original"] = "reconstruction"
    """What edits are compared with: pictures as the tokeniser gives them back, or as they were."""
    zone: Literal["pixels", "cells"] = "pixels"
    """Precision and the background are judged by the region itself, or by the cells of the
    tokeniser that hold any of it: an edit cannot change less than a cell."""
    vqa: VqaConfig | None = None
    """A model to ask whether the edit was made."""

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")
        for name in ("threshold", "success_at"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1], got {getattr(self, name)}")

    @property
    def num_samples(self) -> int:
        there = self.edits.num_records().get("held_out", 0)
        if there < (self.samples or 1):
            raise ValueError(f"there are {there} held-out pairs, {self.samples or 1} are asked for")
        return self.samples or there

    def identity(self) -> dict[str, Any]:
        found = without_places(self)
        found["found"] = [self.edits.tokenizer_hash(), self.edits.data_hash()]
        found["vqa"] = self.vqa.identity() if self.vqa else None
        del found["edits"]["source_in"]
        return found

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
                f"the image suite takes tokenisers of {np.iinfo(CODES).max} codes at most, got "
                f"{num_codes}"
            )

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        edits = dataclasses.replace(
            self.edits, source_in="canvas" if decoder.start == "given" else "prompt"
        )
        reasons: list[str] = []
        found = self._read(edits, samples, backbone, reasons)
        if not found:
            return with_left_out(PREDICTIONS.empty_table(), reasons)
        numbers, pairs, source, target = (list(x) for x in zip(*found, strict=True))
        revision = self._revise(backbone, edits, pairs, numbers, (source, target), decoder)
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
                "number": numbers,
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
        paths = Paths.read(predictions, CODES)
        return [
            *self._outcomes(predictions, paths),
            *what_revision_did(paths),
            *_localisation(paths, stack(predictions["edit_mask"], np.uint8) > 0),
            *_by_steps(paths),
        ]

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        paths = Paths.read(predictions, CODES)
        return [self._shown(predictions, paths, i) for i in range(min(SHOWN, len(predictions)))]

    def _read(
        self, edits: ImageEditSource, samples: range, backbone: Backbone, reasons: list[str]
    ) -> list[tuple[int, EditPair, Tensor, Tensor]]:
        """The pairs that can be used, each after its number and before its source's and target's
        codes; `reasons` names the others."""
        most = min(edits.max_length, backbone.max_length or edits.max_length)
        taken = []
        for number, pair in edits.usable("held_out", samples, reasons):
            length = edits.row_length(pair)
            if length <= most:
                taken.append((number, pair))
            else:
                reasons.append(f"{pair.pair_id}: a row of {length} tokens; {most} are the most")
        codes = (edits.encode([getattr(pair, x) for _, pair in taken]) for x in SIDES)
        found = []
        for (number, pair), source, target in zip(taken, *codes, strict=True):
            if edits.equal == "skip" and torch.equal(source, target):
                reasons.append(f"{pair.pair_id}: {SAME_TOKENS}")
            else:
                found.append((number, pair, source, target))
        return found

    def _revise(
        self,
        backbone: Backbone,
        edits: ImageEditSource,
        pairs: list[EditPair],
        numbers: list[int],
        codes: tuple[list[Tensor], list[Tensor]],
        decoder: Decoder,
    ) -> Revision:
        """The decode of the canvas's cells alone: codes plus 1, 0 for MASK, [K+1, B, cells]; those
        of smaller pictures are followed by others that mean nothing."""
        rows = [
            edits.row(pair.instruction, *grids) for pair, *grids in zip(pairs, *codes, strict=True)
        ]
        start, lengths = (
            torch.from_numpy(x) for x in pad([r.wrong.numpy() for r in rows], np.dtype(np.int64))
        )
        editable = torch.from_numpy(pad([r.editable.numpy() for r in rows], np.dtype(np.bool_))[0])
        if decoder.start != "given":
            source, target = (torch.cat([x.flatten() for x in grids]) for grids in codes)
            is_asked = (source != target) | (decoder.start != "oracle")
            start[editable] = torch.where(is_asked, backbone.mask_id, start[editable])
        is_token = torch.arange(start.shape[1]) < lengths[:, None]
        revision = decoder.revise(
            backbone, start, editable, is_token=is_token, row_ids=torch.tensor(numbers)
        )
        return self._cells(revision, editable, backbone.mask_id)

    def _cells(self, revision: Revision, editable: Tensor, mask_id: int) -> Revision:
        image = self.edits.layout.image
        counts = editable.sum(1, keepdim=True)
        most = int(counts.max())
        cells = (~editable).byte().argsort(dim=1, stable=True)[:, :most]  # the canvas's first
        is_cell = torch.arange(most) < counts  # [B, most]
        states, actions = (
            x.gather(2, cells.expand(len(x), -1, -1))
            for x in (revision.trajectory, revision.actions)
        )
        foreign = (states != mask_id) & ~image.is_code(states) & is_cell
        if foreign.any():
            raise ValueError(
                f"the model revealed id {int(states[foreign][0])}, which is no code: codes are "
                f"{image.code_offset} .. {image.code_offset + image.num_codes - 1}"
            )
        return dataclasses.replace(
            revision,
            trajectory=torch.where(states == mask_id, 0, states - image.code_offset + 1),
            actions=actions,
        )

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
        """Where the edit belongs, and what of that is another in the target."""
        differs = changed_pixels(pair.target, pair.source, self.threshold)
        return (differs, differs) if pair.region is None else (pair.region, pair.region & differs)

    def _outcomes(self, predictions: pa.Table, paths: Paths) -> list[Score]:
        """The paper's figures, and whether the edit was made."""
        found = {f.name: predictions[f.name].to_numpy() for f in MEASURES}
        is_empty = np.isnan(found["agreement"])
        agrees = np.nan_to_num(found["agreement"]) >= self.success_at
        success = np.where(is_empty, found["changed"] == 0, agrees)
        kinds = np.array(predictions["edit"].to_pylist())
        scores = [
            _ratio("precision", found["changed_in_zone"], found["changed"]),
            _ratio("coverage", found["changed_in_region"], found["region"]),
            _mean("outside_mae", found["outside_mae"], better="lower"),
            _mean("outside_psnr", found["outside_psnr"]),
            _mean("outside_ssim", found["outside_ssim"]),
            *(_mean(x, predictions[x].to_numpy(), better="neither") for x in IDEAL),
            share("success", success),
            _mean("agreement", found["agreement"], unit="share"),
            share("exact", paths.exact(paths.final)),
            *(share(f"success_{k}", success[kinds == k]) for k in sorted({*kinds} - {""})),
            mean("forward_passes", paths.forward_passes, better="lower"),
            mean("left_out", np.array([self.num_samples - len(predictions)]), better="lower"),
            mean("no_edit", np.array([is_empty.sum()]), better="neither"),
        ]
        if predictions["vqa"].null_count == 0:
            answers = predictions["vqa"].to_numpy()
            scores.append(mean("vqa_score", answers, unit="share"))
        return scores

    def _shown(self, predictions: pa.Table, paths: Paths, row: int) -> dict[str, Any]:
        facts = {name: predictions[name][row].as_py() for name in ("number", "edit", "agreement")}
        pair = self.edits.pairs.pair("held_out", facts["number"])
        length, last = paths.lengths[row], paths.steps[row]
        kept = np.unique(np.linspace(0, last, MOST_STATES).round().astype(int))
        states = paths.states[kept, row, :length]
        size = self.edits.grid(pair.source)
        grid = torch.from_numpy(states.astype(np.int64)).view(-1, *size)
        edit_mask = np.frombuffer(predictions["edit_mask"][row].as_py(), np.uint8).reshape(size)
        agreement = facts["agreement"]
        ended = "nothing to change" if math.isnan(agreement) else f"{agreement:.0%} as the target"
        return {
            "sample_id": pair.pair_id,
            "instruction": pair.instruction,
            "note": f"{pair.instruction}; {ended}",
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


SIDES = ("source", "target")
MEASURES = dataclasses.fields(EditMeasures)
BACKGROUND = ("outside_mae", "outside_psnr", "outside_ssim")
IDEAL = tuple(f"ideal_{name}" for name in BACKGROUND)
"""The same of the target itself: a cell's picture reaches into its neighbours', so the best edit
does not leave all else as it was."""
PREDICTIONS = pa.schema(
    [
        ("sample_id", pa.string()),
        ("number", pa.int64()),
        *((name, pa.string()) for name in ("edit", "instruction")),
        *((name, pa.binary()) for name in ("solution", "start", "states")),
        ("forward_passes", pa.int32()),
        ("edit_mask", pa.binary()),
        *((f.name, pa.int64() if f.type is int else pa.float64()) for f in MEASURES),
        *((name, pa.float64()) for name in IDEAL),
        ("vqa", pa.float64()),
    ]
)


def _localisation(paths: Paths, edit_mask: Bools) -> list[Score]:
    """Is what the model chose to edit what differs? For revisers, whose canvas starts full."""
    if (paths.states[0] == 0).any():
        return []
    differs = paths.start != paths.solution
    hits = (edit_mask & differs).sum(-1)
    return [
        _ratio("mask_precision", hits, edit_mask.sum(-1)),
        _ratio("mask_recall", hits, differs.sum(-1)),
    ]


def _by_steps(paths: Paths) -> list[Score]:
    """Cells that should change and are as the target, and cells that should stay and did."""
    differs = paths.start != paths.solution
    return [
        _ratio(name, (state == paths.solution) & where, where, by="steps", at=step)
        for step, state in enumerate(paths.states)
        for name, where in (("edited_cells", differs), ("kept_cells", paths.is_there & ~differs))
    ]


def _ratio(metric: str, parts: Any, wholes: Any, **facts: Any) -> Score:
    """A share of pixels or cells over all samples; not a number where there are none."""
    parts, wholes = (x.sum(-1) if x.ndim > 1 else x for x in (parts, wholes))
    if wholes.sum() == 0:
        return Score(metric=metric, value=math.nan, low=math.nan, high=math.nan, count=0, **facts)
    return ratio(metric, parts, wholes, **facts)


def _mean(metric: str, values: Any, **facts: Any) -> Score:
    """The mean over the samples that have the figure."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Score(metric=metric, value=math.nan, low=math.nan, high=math.nan, count=0, **facts)
    return mean(metric, known, **facts)
