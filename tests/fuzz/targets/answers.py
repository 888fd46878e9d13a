"""What models write: final answers, programs, and steps of countdown."""

from random import Random

from remask.pipeline.benchmarks.humaneval import CompletionTask
from remask.pipeline.judges.answers import extract_answer
from remask.pipeline.judges.programs import complete_program, extract_program
from remask.pipeline.sources.countdown import ALPHABET, is_solution
from tests.fuzz.case import Case, Target, ViolationError
from tests.fuzz.mutate import mutate_text

ANSWER = "So it is $\\boxed{\\frac{1}{2}}$. The answer is 7/2.\n#### $1,234.50\n"
ANSWER_PARTS = (
    *("\\boxed{", "\\fbox {", "\\boxed 3", "{", "}", "\\{", "\\\\", "$", "$$", "\\(", "\\]"),
    *(
        "answer is",
        "Answer:",
        "####",
        "1,234",
        "-.5",
        "1" * 3000,
        "," * 300,
        "{" * 2000,
        "}" * 2000,
    ),
    *(
        "\\boxed{" * 500,
        "answer is " * 500,
        "1," * 1000,
        " " * 5000,
        "\n" * 1000,
        "I hope it is correct",
    ),
)
PROGRAM = "Here it is:\n```python\ndef f(x):\n    return x + 1\n```\n[DONE]"
PROGRAM_PARTS = (
    *("```", "```python\n", "~~~", "[BEGIN]", "[DONE]", "def f(x):", "class f:", "async def f("),
    *("<|endoftext|>", "    ", "\t", "\r\n", "\\", "'''", '"""', "(" * 500, "```\n" * 500, "\0"),
)
TASK = CompletionTask(
    task_id="0",
    prompt='import math\n\ndef f(x):\n    """One more."""\n',
    entry_point="f",
    reference="    return x + 1\n",
    test="def check(candidate):\n    assert candidate(1) == 2\n",
)
PROMPTS = ("8342=7:", "8+3-4+2:")
SOLUTION = "8+3=9;9-4=5;5+2=7......"


def make_answer(rng: Random) -> Case:
    said, notes = mutate_text(ANSWER, rng, ANSWER_PARTS)
    return Case({}, (said, rng.choice(("math", "gsm8k"))), tuple(notes))


def make_program(rng: Random) -> Case:
    said, notes = mutate_text(PROGRAM, rng, PROGRAM_PARTS)
    return Case({}, (said,), tuple(notes))


def make_countdown(rng: Random) -> Case:
    """A prompt, and characters that a model can write in any order."""
    said, notes = mutate_text(SOLUTION, rng, tuple(ALPHABET))
    written = "".join(x for x in said if x in ALPHABET)
    return Case({}, (rng.choice(PROMPTS), written), tuple(notes))


def run_answer(case: Case) -> None:
    said, preset = case.arguments
    if extract_answer(said, preset) == "":
        raise ViolationError("an answer is empty, where there should be none")


def run_program(case: Case) -> None:
    extract_program(case.arguments[0], ["f"])
    complete_program(TASK, case.arguments[0])


def run_countdown(case: Case) -> None:
    is_solution(*case.arguments)


TARGETS = (
    Target("answers", make_answer, run_answer),
    Target("programs", make_program, run_program),
    Target("countdown", make_countdown, run_countdown),
)
