"""The parts of an evaluation: runs of a suite, a checkpoint and a decoder, cut into chunks.

Chunks are sent to Ray workers, and Ray pickles a class by the name of its module. So they have a
module of their own, which is never run as `__main__`.
"""

import dataclasses
import functools
import itertools
from dataclasses import dataclass

from remask.evaluation.decoder import TUNED, Decoder, resolve
from remask.evaluation.recipe import EvalRecipe
from remask.evaluation.suite import AdaptsDecoders, Suite
from remask.models import Backbone, fingerprint
from remask.models.checkpoints.checkpoint import outline
from remask.models.checkpoints.decoding_file import read_decoding
from remask.models.checkpoints.hub import pinned
from remask.models.checkpoints.shipped import lasting_name
from remask.pipeline.runtime.recipes import digest

MAX_CHUNKS = 1_000_000
"""Limit on the files of predictions of one run."""


@dataclass(frozen=True)
class Run:
    """One suite with one checkpoint and one decoder."""

    suite_name: str
    suite: Suite
    checkpoint: str
    member: int
    path: str
    fingerprint: str
    decoder_name: str
    decoder: Decoder
    samples_per_chunk: int

    @functools.cached_property  # pickled with the run, so that workers need not hash data again
    def folder(self) -> str:
        """Folder of the predictions, named by a digest of everything that they depend on."""
        decoder = dataclasses.asdict(self.decoder)
        del decoder["batch_size"]
        suite = [self.suite.kind, self.suite.version, self.suite.identity()]
        key = digest([suite, self.fingerprint, decoder, self.samples_per_chunk])
        return f"predictions/{key}"

    @property
    def chunks(self) -> list["Chunk"]:
        count = self.suite.num_samples
        if count > MAX_CHUNKS * self.samples_per_chunk:
            raise ValueError(
                f"{self.suite_name}: {count:,} samples in chunks of {self.samples_per_chunk} make "
                f"more than {MAX_CHUNKS:,} files; raise samples_per_chunk"
            )
        starts = range(0, count, self.samples_per_chunk)
        return [Chunk(self, range(i, min(i + self.samples_per_chunk, count))) for i in starts]


@dataclass(frozen=True)
class Chunk:
    """The unit of work: a range of a run's samples."""

    run: Run
    samples: range

    @property
    def name(self) -> str:
        return f"{self.run.folder}/{self.samples.start:07d}.parquet"


def make_runs(recipe: EvalRecipe) -> list[Run]:
    """All runs of the recipe, each once, checked before anything is decoded."""
    suites = {name: suite.with_absolute_paths() for name, suite in recipe.make_suites().items()}
    inspect = functools.cache(_inspect)
    pin = functools.cache(_pinned)
    runs: dict[tuple[str, str, str, int], Run] = {}
    for selection in recipe.runs:
        for suite, checkpoint, decoder in itertools.product(
            selection.suites or recipe.suites,
            selection.checkpoints or recipe.checkpoints,
            selection.decoders or recipe.decoders,
        ):
            for member, given in enumerate(recipe.members(checkpoint)):
                path = pin(checkpoint, given)
                name, model = inspect(checkpoint, path)
                suites[suite].check(model)
                runs[suite, checkpoint, decoder, member] = Run(
                    suite_name=suite,
                    suite=suites[suite],
                    checkpoint=checkpoint,
                    member=member,
                    path=lasting_name(path),
                    fingerprint=name,
                    decoder_name=decoder,
                    decoder=_resolved(suites[suite], recipe.decoders[decoder], decoder, path),
                    samples_per_chunk=recipe.samples_per_chunk,
                )
    return list(runs.values())


def _pinned(checkpoint: str, path: str) -> str:
    """The path of a checkpoint, or its name on the hub with its commit."""
    try:
        return pinned(path, "model")
    except ValueError as error:
        raise ValueError(f"checkpoints: {checkpoint}: {error}") from error


def _inspect(checkpoint: str, path: str) -> tuple[str, Backbone]:
    """The fingerprint of a checkpoint, and its model without weights."""
    try:
        return fingerprint(path), outline(path)
    except ValueError as error:
        raise ValueError(f"checkpoints: {checkpoint}: {error}") from error


def _resolved(suite: Suite, decoder: Decoder, name: str, path: str) -> Decoder:
    """The decoder with the settings that the suite decides or that were tuned for the checkpoint.

    Predictions are stored under a digest of these settings, so that tuning again decodes again.
    """
    try:
        tuned = read_decoding(path) if decoder.policy == TUNED else None
        if isinstance(suite, AdaptsDecoders):
            return resolve(decoder, tuned, suite.adapt)
        return resolve(decoder, tuned)
    except ValueError as error:
        raise ValueError(f"decoders: {name}: {error}") from error
