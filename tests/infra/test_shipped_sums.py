"""The packaged text model: what its card and the README say of it still holds."""

import re
import shlex

import pytest

import remask
from remask.evaluation.decoder import Decoder
from remask.evaluation.suites.countdown import CountdownSuite
from remask.infra.cli import main
from remask.infra.options import Options
from remask.models import load
from remask.models.checkpoints.shipped import SHIPPED
from remask.pipeline.sources.countdown import is_solution, work_out
from tests.places import ROOT


@pytest.fixture(scope="module")
def reviser():
    return remask.open_reviser("sums")


def test_it_solves_what_its_card_says():
    """Most of a sample of 100 of the card's prompts, by the card's decoder."""
    (line,) = re.findall(r"^\| solved %.*$", (SHIPPED / "sums/README.md").read_text(), re.M)
    said = [float(x) for x in re.findall(r"\| ([\d.]+) \[", line)]
    suite = CountdownSuite(signs="given", prompts=100, numbers=(2, 6), largest=9, seed=2026)
    decoder = Decoder(max_steps=7, settings={"reveal_within": 0.5})
    predictions = suite.predict(load("sums"), range(100), suite.adapt(decoder))
    (solved,) = [x.value for x in suite.score(predictions) if x.metric == "solved"]
    assert len(said) == 3
    assert 100 * solved >= said[1] - 3


def test_the_decode_of_the_readme_is_what_the_model_does(capsys):
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^remask (revise --prompt .* --draft .*)$", text, re.M)
    main([*shlex.split(command), "--show"])
    printed = capsys.readouterr()
    assert printed.out == "8+3=9;9-4=5;5+2=7\n"
    steps = [x.rstrip() for x in printed.err.splitlines() if re.match("start|step", x)]
    assert len(steps) == 5
    assert "\n".join(steps) in text


def test_it_repairs_most_first_steps_that_are_wrong(reviser):
    """A wrong result that the rest of a draft follows from, in the first of four steps; with the
    margin that the card names."""
    options, num_right = Options(margin=-3.0), 0
    for i in range(20):
        prompt, draft = broken_draft(i)
        record = reviser.revise(reviser.start({"prompt": prompt, "draft": draft}), options)
        num_right += is_solution(prompt, record.result)
    assert num_right >= 17


def broken_draft(i: int) -> tuple[str, str]:
    """A prompt of five digits, and steps that are right but for the first result."""
    numbers = [1 + i % 9, 2, 1 + i % 7, 3, 1 + i % 5]
    signs = "+-+-"
    step, first = work_out(numbers[:2], signs[0])
    wrong = first - 1 if first > 4 else first + 1
    rest, _ = work_out([wrong, *numbers[2:]], signs[1:])
    prompt = str(numbers[0]) + "".join(s + str(n) for s, n in zip(signs, numbers[1:], strict=True))
    return f"{prompt}:", f"{step[:-1]}{wrong};{rest}"
