"""Samples side by side: what each run made of the same one, in pictures or in text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remask.evaluation.player import GalleryPicture, PlayerSample, TextAnswer
from remask.evaluation.report.results import Evaluation, ShownRun
from remask.evaluation.stats.labels import RunName

MAX_QUESTIONS = 12
"""Limit on the questions that are shown with their answers; the player has the others too."""
MAX_ANSWERS = 8
"""Number of answers to a question that are not folded away."""


@dataclass(frozen=True)
class GalleryRun:
    label: str
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

    @property
    def answers(self) -> list[tuple[str, TextAnswer]]:
        """What each run answered, by its label."""
        return [(run.label, run.sample.answer) for run in self.runs if run.sample.answer]

    @property
    def first_answers(self) -> list[tuple[str, TextAnswer]]:
        return self.answers[:MAX_ANSWERS]

    @property
    def other_answers(self) -> list[tuple[str, TextAnswer]]:
        return self.answers[MAX_ANSWERS:]

    @property
    def prompt(self) -> str:
        return next((answer.prompt for _, answer in self.answers), "")


@dataclass(frozen=True)
class Gallery:
    samples: list[GallerySample]
    """Samples with pictures."""
    questions: list[GallerySample]
    """Samples with answers in text; those that most runs show come first."""
    num_left_out: int
    """Number of further questions."""

    @property
    def captions(self) -> list[str]:
        """What the columns show, each explanation once."""
        runs = (run for sample in self.samples for run in sample.runs)
        captions = (picture.caption for run in runs for picture in run.sample.pictures)
        return list(dict.fromkeys(caption for caption in captions if caption))


def make_gallery(evaluation: Evaluation, first: Sequence[RunName] = ()) -> Gallery:
    """The samples that have pictures or answers, in the order in which runs show them.

    Args:
        evaluation: Where they come from.
        first: The runs whose answers come first.
    """
    pictures = _group((x, sample) for x, sample in _shown(evaluation.showcase) if sample.pictures)
    order = sorted(evaluation.showcase, key=lambda run: run.run not in first)
    asked = _group((x, sample) for x, sample in _shown(order) if sample.answer)
    questions = sorted(asked, key=lambda sample: -len(sample.runs))
    num_left_out = max(0, len(questions) - MAX_QUESTIONS)
    return Gallery(pictures, questions[:MAX_QUESTIONS], num_left_out)


def _shown(showcase: Sequence[ShownRun]) -> Iterator[tuple[ShownRun, PlayerSample]]:
    return ((run, sample) for run in showcase for sample in run.samples)


def _group(shown: Iterator[tuple[ShownRun, PlayerSample]]) -> list[GallerySample]:
    samples: dict[tuple[str, str], GallerySample] = {}
    for run, sample in shown:
        first = GallerySample(sample.sample_id, sample.heading, [])
        own = samples.setdefault((run.suite, sample.sample_id), first)
        own.runs.append(GalleryRun(run.label, sample))
    return list(samples.values())
