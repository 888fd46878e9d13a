"""Benchmarks read into records."""

import gzip
import json

import pytest

from remask.pipeline.benchmarks.arc import read_arc
from remask.pipeline.benchmarks.gsm8k import read_gsm8k
from remask.pipeline.benchmarks.humaneval import read_humaneval
from remask.pipeline.benchmarks.math import read_math
from remask.pipeline.benchmarks.mbpp import mbpp_part, read_mbpp
from tests.places import SHARED

MATH = {"problem": "1+1?", "solution": r"It is \boxed{2}.", "subject": "Algebra", "level": 3}
GSM8K = {"question": "How many?", "answer": "He has 1,000 + 1.\n#### 1,001"}
MBPP = {"task_id": 7, "text": "Add.", "code": "def f(x):\r\n\treturn x", "test_list": ["f(1)"]}
ARC = {
    "id": "Q1",
    "question": "Which?",
    "choices": {"text": ["this", "that"], "label": ["A", "B"]},
    "answerKey": "B",
}
HUMANEVAL = {
    "task_id": "HumanEval/7",
    "prompt": 'import math\r\ndef f(x):\r\n    """Half."""\r\n',
    "entry_point": "f",
    "canonical_solution": "    return x / 2\n",
    "test": "def check(candidate):\n    assert candidate(4) == 2\n",
}
READERS = {"math": (read_math, MATH), "gsm8k": (read_gsm8k, GSM8K), "arc": (read_arc, ARC)}
READERS["humaneval"] = (read_humaneval, HUMANEVAL)
READERS["mbpp"] = (lambda path: read_mbpp(path, "all"), MBPP)


@pytest.fixture
def write(tmp_path):
    def write_rows(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write_rows


def test_math_takes_both_layouts(write):
    original = {
        "problem": "?",
        "solution": "-",
        "answer": "5",
        "type": "Geometry",
        "level": "Level 5",
    }
    unknown = original | {"level": "Level ?", "unique_id": "test/1.json"}
    a, b, c = read_math(write(MATH, original, unknown))
    assert (a.answer, a.subject, a.level, a.problem_id) == ("2", "Algebra", 3, "1")
    assert (b.answer, b.subject, b.level) == ("5", "Geometry", 5)
    assert (c.level, c.problem_id) == (None, "test/1.json")


def test_gsm8k_parts_solution_and_answer(write):
    (row,) = read_gsm8k(write(GSM8K))
    assert (row.solution, row.answer) == ("He has 1,000 + 1.", "1001")


def test_mbpp_takes_both_layouts(write):
    sanitized = MBPP | {"prompt": "Add!", "test_imports": ["import math"]}
    del sanitized["text"]
    a, b = read_mbpp(write(MBPP, sanitized), "all")
    assert (a.task_id, a.text, a.setup, a.tests) == (7, "Add.", "", ("f(1)",))
    assert a.reference == "def f(x):\n\treturn x"
    assert (b.text, b.setup) == ("Add!", "import math")


def test_arc_keeps_labels_and_texts_together(write):
    (row,) = read_arc(write(ARC))
    assert (row.labels, row.texts, row.answer) == (("A", "B"), ("this", "that"), "B")


def test_mbpp_parts_depend_on_seed_and_number_alone(write):
    rows = [MBPP | {"task_id": number} for number in range(1, 101)]
    parts = {p: [t.task_id for t in read_mbpp(write(*rows), p, seed=3)] for p in ("train", "test")}
    assert sorted(parts["train"] + parts["test"]) == list(range(1, 101))
    turned = read_mbpp(write(*rows[::-2]), "train", seed=3)
    assert {t.task_id for t in turned} == set(parts["train"]) & set(range(2, 101, 2))
    assert [mbpp_part(n, 3) for n in range(1, 1001)] != [mbpp_part(n, 4) for n in range(1, 1001)]
    shares = [sum(mbpp_part(n, seed) == "train" for n in range(974)) / 974 for seed in range(5)]
    assert all(0.25 < share < 0.35 for share in shares)


@pytest.mark.parametrize("name", READERS)
def test_a_missing_field_names_file_and_row(name, write):
    read, row = READERS[name]
    for field in {*row} - {"id"}:
        short = {k: v for k, v in row.items() if k != field}
        with pytest.raises(ValueError, match=r"rows.jsonl: row 2 has no field") as error:
            read(write(row, short))
        assert "it has [" in str(error.value)


@pytest.mark.parametrize("name", READERS)
def test_no_rows_are_an_error(name, write):
    with pytest.raises(ValueError, match="rows.jsonl holds no rows"):
        READERS[name][0](write())


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("math", {"problem": ""}, "row 1: problem must be a non-empty text, got ''"),
        ("math", {"problem": None}, "row 1: problem must be a non-empty text"),
        ("gsm8k", {"answer": "7"}, "row 1: answer has no number after ####"),
        ("mbpp", {"test_list": []}, "row 1: test_list must be a list of at least one test"),
        ("mbpp", {"test_list": "assert"}, "row 1: test_list must be"),
        ("humaneval", {"prompt": "def f(x:"}, "row 1: it is not Python: "),
        ("humaneval", {"entry_point": "g"}, "row 1: nothing defines the function g"),
        ("humaneval", {"test": "x = 1"}, "row 1: nothing defines the function check"),
        ("arc", {"answerKey": "E"}, "row 1: answerKey 'E' is not one of"),
        ("arc", {"choices": {"text": ["x"], "label": ["A", "B"]}}, "row 1: choices do not match"),
    ],
)
def test_malformed_rows(name, change, message, write):
    read, row = READERS[name]
    with pytest.raises(ValueError, match=message):
        read(write(row | change))


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    whole = gzip.compress(f"{json.dumps(HUMANEVAL)}\n".encode())
    path.write_bytes(whole)
    assert [task.task_id for task in read_humaneval(str(path))] == ["HumanEval/7"]
    for damaged in (whole[:-9], b"{}", gzip.compress(b"\xff")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cannot read .*rows.jsonl.gz: "):
            read_humaneval(str(path))


def test_a_line_that_is_not_a_json_object_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    for line in ("{", "[1]", ""):
        path.write_text(json.dumps(GSM8K) + f"\n{line}\n")
        with pytest.raises(ValueError, match="rows.jsonl: row 2 is not (JSON|a JSON object)"):
            read_gsm8k(str(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no file .*gone.jsonl"):
        read_arc(str(tmp_path / "gone.jsonl"))


def test_a_hub_out_of_reach_says_how_to_pass_a_file():
    with pytest.raises(ValueError, match="data 'no/such' cannot be loaded from the hub: .*local"):
        read_math("no/such")


def test_a_data_set_in_parts_is_read_whole(tmp_path):
    """As MATH lies on the hub, a part for each subject; here in a folder of that layout."""
    parts = []
    for subject in ("Algebra", "Geometry"):
        (tmp_path / f"{subject}.jsonl").write_text(json.dumps(MATH | {"subject": subject}) + "\n")
        files = f"[{{split: test, path: {subject}.jsonl}}]"
        parts.append(f"- {{config_name: {subject}, data_files: {files}}}")
    (tmp_path / "README.md").write_text("\n".join(["---", "configs:", *parts, "---", ""]))
    assert [p.subject for p in read_math(str(tmp_path))] == ["Algebra", "Geometry"]


@pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is not there")
def test_the_published_data_is_read_whole():
    assert len(read_math(str(SHARED / "math500" / "test.jsonl"))) == 500
    assert len(read_math(str(SHARED / "math_hendrycks" / "test.jsonl"))) == 5000
    assert len(read_gsm8k(str(SHARED / "gsm8k" / "test.jsonl"))) == 1319
    assert len(read_arc(str(SHARED / "arc_challenge" / "test.jsonl"))) == 1172
    parts = [read_mbpp(str(SHARED / "mbpp" / "mbpp.jsonl"), p) for p in ("train", "test", "all")]
    assert [len(part) for part in parts] == [281, 693, 974]
