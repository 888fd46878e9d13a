"""Reports: scores, facts and samples of any kind to HTML, which must hold no markup of theirs."""

import base64
import functools
import json
from html.parser import HTMLParser
from pathlib import Path
from random import Random

from remask.evaluation.report import make as report
from tests.evaluation.folders import entry, make_folder, sample
from tests.fuzz.bases import made
from tests.fuzz.case import Case, Files, Target, ViolationError
from tests.fuzz.mutate import MARKUP, keys_and_texts, mutate_bytes, mutate_json
from tests.fuzz.tables import rewrite
from tests.fuzz.targets.pictures import picture

OUTPUT = "eval-of-fuzz"
TABLE = {
    "title": "Boards",
    "note": "small",
    "suite": "sudoku",
    "metrics": ["exact", "conflicts"],
    "rows": [
        {"label": "ours", "checkpoint": "her", "decoder": "rm", "quoted": [91.5, None]},
        {"label": "theirs", "quoted": [80.0, 0.5]},
    ],
}
CURVE = {
    "suite": "sudoku",
    "metric": "exact",
    "lines": [{"label": "ours", "checkpoint": "her", "decoders": ["rm"]}],
}
HEADLINE = {
    "suite": "sudoku",
    "metric": "exact",
    "rows": [{"label": "ours", "checkpoint": "her", "decoder": "rm", "quoted": [91.5]}],
}


@functools.cache
def evaluated() -> Files:
    """A folder with every kind of sample."""
    png = base64.b64encode(picture("PNG", "RGB", 0)).decode()
    edit = {
        "sample_id": "e",
        "rows": 1,
        "columns": 2,
        "instruction": "make it red",
        "solution": [1, 2],
        "states": [[1, 1], [0, 2], [1, 2]],
        "pictures": dict.fromkeys(("source", "target", "edit", "mask", "difference"), png),
        "steps": [png] * 3,
        "note": "good",
    }
    letters = {"sample_id": "c", "symbols": "_.01", "states": [[0, 0], [2, 3]], "note": "solved"}
    answer = {
        "sample_id": "q",
        "prompt": "How many?",
        "response": "two\n",
        "answer": "two",
        "expected": "2",
        "verdict": "by hand",
        "is_right": True,
        "note": "right",
        "symbols": ["·", "two", "\n", "three"],
        "states": [[0, 0], [3, 2], [0, 2], [1, 2]],
        "steps": [0, 2, 3, 5],
    }
    showcase = [
        entry(samples=[sample()]),
        entry(samples=[answer], kind="math", suite="questions"),
        entry(samples=[edit], kind="image_edit", suite="edits"),
        entry(samples=[letters], kind="countdown", suite="countdown"),
    ]
    files = made(lambda folder: make_folder(folder / OUTPUT, showcase=showcase, tables=[TABLE]))
    name = f"{OUTPUT}/evaluation.json"
    facts = json.loads(files[name])
    facts["recipe"] |= {"curves": [CURVE], "title": "Boards, repaired", "headline": HEADLINE}
    return files | {name: json.dumps(facts).encode()}


def make(rng: Random) -> Case:
    files, notes = dict(evaluated()), []
    for name in rng.sample(list(files), rng.choice((1, 1, 2))):
        if name.endswith(".json"):
            files[name], done = mutate_json(files[name], rng)
        else:
            files[name], done = rng.choice((rewrite, rewrite, mutate_bytes))(files[name], rng)
        notes += [name, *done]
    sheet = ("--sheet", "sheet.png") if rng.random() < 0.2 else ()
    return Case(files, sheet, tuple(notes), (OUTPUT, *keys_and_texts(TABLE)))


def run(case: Case) -> None:
    report.main([OUTPUT, *case.arguments])
    check_page(Path(OUTPUT, "report.html").read_text())


class _Tags(HTMLParser):
    """What a browser would make elements of."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if MARKUP in tag or any(MARKUP in name or name.startswith("on") for name, _ in attrs):
            self.problems.append(f"the page holds the tag {tag} of the data")
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def check_page(page: str) -> None:
    """Raise ViolationError where text from data has become markup or script."""
    tags = _Tags()
    tags.feed(page)
    tags.close()
    if tags.problems:
        raise ViolationError(tags.problems[0])
    if not page.endswith("</html>\n") or len(tags.scripts) > 2:
        raise ViolationError("the page has more scripts than its own, or no end")
    for script in tags.scripts[:-1]:
        try:
            json.loads(script, parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError):
            raise ViolationError("the player's data are no JSON that a browser reads") from None


TARGETS = (Target("report", make, run, share=2.0),)
