"""Text: benchmarks and prompts as JSONL, tokenizers with their chat templates, conversations."""

import functools
import json
import re
from random import Random
from typing import Any

import yaml

from remask.models.text.prompts import load_tokenizer
from remask.pipeline import build
from remask.pipeline.benchmarks.arc import read_arc
from remask.pipeline.benchmarks.gsm8k import read_gsm8k
from remask.pipeline.benchmarks.humaneval import read_humaneval
from remask.pipeline.benchmarks.math import read_math
from remask.pipeline.benchmarks.mbpp import read_mbpp
from tests.fuzz.bases import DATA, made
from tests.fuzz.case import Case, Files, Target
from tests.fuzz.mutate import mutate_bytes, mutate_json, mutate_text, mutate_value, to_json
from tests.text_folders import TEMPLATE, write_text_tokenizer

ROWS: dict[str, dict[str, Any]] = {
    "math": {
        "problem": "What is 1 + 1?",
        "solution": "It is \\boxed{2}.",
        "answer": "2",
        "subject": "Algebra",
        "level": "Level 1",
        "unique_id": "a/1",
    },
    "gsm8k": {"question": "How many?", "answer": "Two <<1+1=2>>2.\n#### 2"},
    "mbpp": {
        "task_id": 11,
        "text": "Add one.",
        "code": "def f(x):\n    return x + 1",
        "test_list": ["assert f(1) == 2"],
        "test_setup_code": "",
    },
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": "def f(x):\n",
        "entry_point": "f",
        "canonical_solution": "    return x\n",
        "test": "def check(candidate):\n    assert candidate(1) == 1\n",
    },
    "arc": {
        "id": "a",
        "question": "Which?",
        "choices": {"label": ["A", "B"], "text": ["this", "that"]},
        "answerKey": "A",
    },
}
READERS = {
    "math": read_math,
    "gsm8k": read_gsm8k,
    "mbpp": lambda data: read_mbpp(data, "all"),
    "humaneval": read_humaneval,
    "arc": read_arc,
}
RECIPE = {
    "output": DATA,
    "source": {"kind": "text", "data": "rows.jsonl", "tokenizer": "tokenizer", "max_length": 64},
    "trajectories": {"horizon": 4, "noisy_rate": [0.2, 0.9]},
    "run": {"workers": 0},
}
TEMPLATE_PARTS = (
    *(
        "{{ messages[9].content }}",
        "{{ messages }}",
        "{{ undefined.x }}",
        "{{ 1 / 0 }}",
        "{{ [][0] }}",
    ),
    *(
        "{{ raise_exception('no') }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% for %}",
        "{{",
    ),
    *(
        "{% endfor %}",
        "{% if %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 'a' * 10**10 }}",
        "{{ 9**9**9 }}",
    ),
    *(
        "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
        "<|mdm_mask|>",
    ),
    *(
        "{% set x = messages %}{{ x.append(1) }}",
        "{{ range(10**9)|list }}",
        "{{ m.content.a.b }}",
        "%}",
    ),
    *(
        "{{ '%s' % m }}",
        "{{ m|tojson }}",
        "{{ m|nofilter }}",
        "{% macro f() %}{{ f() }}{% endmacro %}",
    ),
    *("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{# ", "{% generation %}", "{% break %}"),
)


@functools.cache
def tokenizer() -> Files:
    """A tokenizer's folder."""
    return made(lambda folder: write_text_tokenizer(folder / "tokenizer"))


def make_benchmark(rng: Random) -> Case:
    name = rng.choice(list(ROWS))
    data, notes = _lines(ROWS[name], rng)
    return Case({"rows.jsonl": data}, (name,), (name, *notes), ("rows.jsonl",))


def make_source(rng: Random) -> Case:
    """Prompts and responses in every kind of file, with templates over their fields."""
    row = {"prompt": "Say it.", "response": "It is said.", "extra": {"deep": [1, 2]}}
    recipe, notes = json.loads(json.dumps(RECIPE)), []
    if rng.random() < 0.3:
        templates = {"prompt": "{prompt}", "response": "{response}"}
        changed, notes = mutate_value(templates, rng)
        recipe["source"] |= changed if isinstance(changed, dict) else {}
    data, more = _lines(row, rng)
    said = yaml.safe_dump(recipe, allow_unicode=True).encode("utf-8", "surrogatepass")
    files = {**tokenizer(), "rows.jsonl": data, "recipe.yaml": said}
    known = ("rows.jsonl", "recipe.yaml", "source", "tokenizer", "template")
    return Case(files, (), (*notes, *more), known)


def make_tokenizer(rng: Random) -> Case:
    """One of a tokenizer's files changed."""
    files = dict(tokenizer())
    name = rng.choice(list(files))
    if name.endswith(".json"):
        data, notes = mutate_json(files[name], rng)
    else:
        changed, notes = mutate_text(TEMPLATE, rng, TEMPLATE_PARTS)
        data = changed.encode(errors="surrogatepass")
    files[name] = data
    return Case(files, ("Hello.",), (name, *notes), ("tokenizer", "template", "prompt"))


def make_chat(rng: Random) -> Case:
    """A conversation of odd words under a sound template, or an odd one under plain words."""
    files = dict(tokenizer())
    if rng.random() < 0.5:
        said, notes = mutate_text("Hello.", rng, ("<|mdm_mask|>", "<|eot_id|>", "{{", "{%"))
        return Case(files, (said,), tuple(notes), ("tokenizer", "prompt"))
    part = rng.choice(TEMPLATE_PARTS)
    at = rng.choice([0, *(match.end() for match in re.finditer(r"[%}]}", TEMPLATE))])
    changed = TEMPLATE[:at] + part + TEMPLATE[at:]
    files["tokenizer/chat_template.jinja"] = changed.encode(errors="surrogatepass")
    return Case(files, ("Hello.",), (f"{part} at {at}",), ("tokenizer", "template", "prompt"))


def run_benchmark(case: Case) -> None:
    READERS[case.arguments[0]]("rows.jsonl")


def run_source(case: Case) -> None:
    build.main(["recipe.yaml"])


def run_chat(case: Case) -> None:
    load_tokenizer.cache_clear()
    read = load_tokenizer("tokenizer")
    rounds = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": case.arguments[0]},
    ]
    ids = read.encode_prompt(rounds, chat=read.has_chat)
    read.decode_answer([*ids, *read.turn_end])


def _lines(row: dict[str, Any], rng: Random) -> tuple[bytes, list[str]]:
    """Some rows, one of them other than the rest, or the whole file's bytes."""
    lines = [to_json(row) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.25:
        return mutate_bytes(b"\n".join(lines), rng)
    changed, notes = mutate_value(row, rng)
    lines[rng.randrange(len(lines))] = to_json(changed)
    return b"\n".join(lines) + b"\n", notes


TARGETS = (
    Target("benchmarks", make_benchmark, run_benchmark, share=2.0),
    Target("text-source", make_source, run_source, share=0.2),
    Target("tokenizer", make_tokenizer, run_chat, share=0.5),
    Target("chat", make_chat, run_chat, share=0.3),
)
