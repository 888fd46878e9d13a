"""Samples with pictures, side by side: what each run made of the same sample."""

from collections.abc import Iterator
from dataclasses import dataclass

from remask.evaluation.player import GalleryPicture, PlayerSample
from remask.evaluation.report.results import Evaluation


@dataclass(frozen=True)
class GalleryRun:
    name: str
    sample: PlayerSample

    @property
    def pictures(self) -> dict[str, GalleryPicture]:
        """The run's pictures by title."""
        return {picture.title: picture for picture in self.sample.pictures}


@dataclass(frozen=True)
class GallerySample:
    """A sample, with a row for every run that shows it."""

    sample_id: str
    heading: str
    runs: list[GalleryRun]

    @property
    def titles(self) -> list[str]:
        """The columns, in the order in which the runs have them."""
        return list(dict.fromkeys(title for run in self.runs for title in run.pictures))


@dataclass(frozen=True)
class Gallery:
    samples: list[GallerySample]

    @property
    def captions(self) -> list[str]:
        """What the columns show, each explanation once."""
        runs = (run for sample in self.samples for run in sample.runs)
        captions = (picture.caption for run in runs for picture in run.sample.pictures)
        return list(dict.fromkeys(caption for caption in captions if caption))


def make_gallery(evaluation: Evaluation) -> Gallery:
    """The samples that have pictures, in the order in which runs show them."""
    samples: dict[str, GallerySample] = {}
    for name, sample in _with_pictures(evaluation):
        first = GallerySample(sample.sample_id, sample.heading, [])
        samples.setdefault(sample.sample_id, first).runs.append(GalleryRun(name, sample))
    return Gallery(list(samples.values()))


def _with_pictures(evaluation: Evaluation) -> Iterator[tuple[str, PlayerSample]]:
    for run in evaluation.showcase:
        for sample in run.samples:
            if sample.pictures:
                yield run.name, sample
