"""A recipe for one's own text, from a file of it to a report: sizes fitted, every choice explained.

The recipe builds shards, trains a base model, builds rows with mistakes that the base finds likely,
trains a reviser on them and on its own decodes, half and half, and evaluates both.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from remask.infra.run import RunRecipe, find_recipes
from remask.infra.text_data import TextFacts, read_facts
from remask.infra.text_sizes import Machine, Sizes, choose_sizes, this_machine
from remask.pipeline.runtime.data_files import FORMATS, is_data_file
from remask.pipeline.runtime.recipes import load_recipe

TEMPLATE = """\
# Your own text: {data_name}, from its rows to a report.
# {rows:,} rows with the fields {fields}; {machine}.
# Takes: about {minutes} minutes there (a guess).
#   remask run {file}
#   remask run {file} --dry-run            # what it would do
#   remask revise --checkpoint {output}/reviser/model --prompt "..."
# A part of it alone: remask train {file}:base steps=100
stages:
  - build data
  - train base
  - build mistakes
  - train reviser
  - eval scores
  - report {output}/eval
recipes:
  # Rows to shards. A share of the rows is held out of training, by a hash of the prompt.
  data:
    output: {output}/data
    cache: {output}/cache
    source: &source
      kind: text
      data: &data {data}
      tokenizer: &tokenizer {tokenizer}{tokenizer_note}
      # {template_note}
      prompt: &prompt {prompt}
      response: &response {response}
      held_out_share: &held_out_share {held_out_share}
      max_length: &max_length {max_length}  # {length_note}
      # Rows are filled up with end tokens to a multiple of this: so a model learns where to end.
      eos_bucket: {eos_bucket}
    trajectories: {{noisy_rate: [0.0, 1.0]}}  # the base draws masks of its own
    examples_per_shard: {examples_per_shard}
    run: {run}
  # A model that fills in masks, from random weights.
  base:
    shards: {output}/data
    output: {output}/base
    # Sizes of this kind: {sizes}. Vocabulary and MASK come from the shards.
    model: {{kind: llada, size: {size}, max_sequence_length: {positions}}}
    history: {{variant: none, norm: rms}}
    objective: {{kind: sft}}  # masks in responses only
    optimizer: {{kind: muon, lr: 0.02, warmup: 50}}
    steps: {base_steps}
    batch_size: {batch_size}
    engine: {{precision: {precision}}}
    save: {{every: {base_steps}}}
    held_out: {{every: 0}}
  # The same rows with mistakes in them, which the base finds likely: wrong, then MASK, then right.
  mistakes:
    output: {output}/mistakes
    cache: {output}/cache
    source: *source
    replicas: {replicas}  # of every row, each with other mistakes
    trajectories:
      horizon: 6
      noisy_rate: [0.0, 1.0]
      rules: {{wrong: 0.5, mask: 0.5}}
      blank_share: 0.5  # rows that start blank, so that the model can also write from nothing
    proposal:
      kind: top_k
      backbone: {output}/base/model
      k: 8
      candidates: uniform
      mode: masked
      mask_rate: 0.5
    examples_per_shard: {examples_per_shard}
    run: {probe_run}
  # The base learns to revise: half of every batch are those mistakes, and half are its own decodes,
  # made anew every round, with its own mistakes in its own past.
  reviser:
    shards: {output}/mistakes
    rounds:
      share: 0.5
      every: {every}
      shards: {shards}
      rollout:
        source: *source
        examples_per_shard: {decodes}
        seed: 2
        looks: {looks}
        decoders: {{steps: {decode_steps}}}
        precision: {decode_precision}
        run: {rollout_run}
    start: {output}/base/model
    output: {output}/reviser
    history: {{norm: rms, decay: 0.5}}
    objective: {{state_weights: {{reveal: 2, mask: 3}}}}  # mask 3 re-masks earlier
    optimizer: {{kind: muon, lr: 0.01, warmup: 20}}
    steps: {steps}
    batch_size: {batch_size}
    engine: {{precision: {precision}}}
    save: {{every: {steps}}}
    held_out: {{every: 0}}
  # Both, on the rows that were held out, with the same numbers of forward passes.
  scores:
    output: {output}/eval
    suites:
      own:
        kind: text
        data: *data
        tokenizer: *tokenizer
        prompt: *prompt
        answer: *response
        judge: {judge}  # {judge_note}
        part: held_out  # all: every row of another file
        held_out_share: *held_out_share
        max_length: *max_length
        gen_length: {gen_length}{limit}
    checkpoints:
      base: {output}/base/model
      reviser: {output}/reviser/model
    decoders:  # revision has a step less, for the closing pass if masks are left
      absorbing-{few}: {{policy: absorbing, max_steps: {few}}}
      absorbing-{many}: {{policy: absorbing, max_steps: {many}}}
      rm-{few}: {{policy: revision, max_steps: {few_steps}, settings: {{reveal_within: 0.5}}}}
      rm-{many}: {{policy: revision, max_steps: {many_steps}, settings: {{reveal_within: 0.7}}}}
    runs:
      - {{checkpoints: [base], decoders: [absorbing-{few}, absorbing-{many}]}}
      - {{checkpoints: [reviser], decoders: [rm-{few}, rm-{many}]}}
    tables:
      - title: {title}
        suite: own
        metrics: [accuracy, forward_passes, remasked, replaced]
        rows:
          - {{label: "base, {few} passes", checkpoint: base, decoder: absorbing-{few}}}
          - {{label: "reviser, {few} passes", checkpoint: reviser, decoder: rm-{few}}}
          - {{label: "base, {many} passes", checkpoint: base, decoder: absorbing-{many}}}
          - {{label: "reviser, {many} passes", checkpoint: reviser, decoder: rm-{many}}}
    curves:
      - suite: own
        metric: accuracy
        lines:
          - {{label: base, checkpoint: base, decoders: [absorbing-{few}, absorbing-{many}]}}
          - {{label: reviser, checkpoint: reviser, decoders: [rm-{few}, rm-{many}]}}
    run: {eval_run}
"""
JUDGES = {
    "exact": "exact, number, regex, math or program (evaluation/README.md)",
    "number": "every response is a number; or exact, regex, math, program (evaluation/README.md)",
}
EXAMPLES_PER_SHARD = 2048
MAX_ASKED = 1000
"""Limit on the held-out rows that are evaluated."""


def new_text_recipe(
    data: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    prompt: str | None = None,
    response: str | None = None,
    file: str | os.PathLike[str] | None = None,
    machine: Machine | None = None,
) -> Path:
    """Write a recipe that `remask run` takes from a file of text to a report.

    Args:
        data: A .jsonl, .json, .csv or .parquet file, or the name of a data set on the hub.
        tokenizer: Folder or hub name of a Hugging Face tokenizer.
        output: Folder of all that the run makes. Defaults to runs/NAME, after the data.
        prompt: Template of the prompt over a row's fields, as "Q: {question}\\nA: ". Defaults to a
            guess.
        response: Template of the response, which goes with `prompt`.
        file: Where to write the recipe. Defaults to NAME.yaml in the working directory.
        machine: What the sizes are fitted to. Defaults to this machine.

    Returns:
        The file.

    Raises:
        ValueError: The data or the tokenizer cannot be used, or the file exists.
    """
    data, tokenizer = os.fspath(data), os.fspath(tokenizer)
    if is_data_file(data) and "://" not in data and not os.path.isfile(data):
        raise ValueError(f"there is no file {data}")
    if os.path.isfile(data) and not is_data_file(data):
        raise ValueError(f"{data} must end in one of {', '.join(FORMATS)}, whose format it has")
    name = "".join(x if x.isalnum() or x in "-_" else "-" for x in Path(data).stem) or "text"
    target = Path(f"{name}.yaml" if file is None else file)
    _check_target(target)
    facts = read_facts(data, tokenizer, prompt, response)
    machine = machine or this_machine()
    folder = f"runs/{name}" if output is None else os.fspath(output).rstrip("/")
    text = write_recipe(facts, choose_sizes(facts, machine), machine, {
        "data": data,
        "tokenizer": tokenizer,
        "output": folder,
        "file": str(target),
        "is_guessed": prompt is None,
    })  # fmt: skip
    check_recipe(text)
    try:
        with target.open("x", encoding="utf-8") as new:
            new.write(text)
    except OSError as error:
        raise ValueError(f"cannot write {target}: {error.strerror}; choose another file") from error
    return target


def write_recipe(facts: TextFacts, sizes: Sizes, machine: Machine, names: dict[str, Any]) -> str:
    """The recipe's text.

    Args:
        facts: About the data.
        sizes: The numbers.
        machine: What they are fitted to.
        names: data, tokenizer, output and file; and is_guessed, whether the templates are a guess.
    """
    few, many = sizes.budgets
    judge = "number" if facts.is_numeric and facts.is_written_back else "exact"
    num_held_out = facts.rows * facts.held_out_share
    is_small = facts.rows <= 50_000
    gpus = bool(machine.gpus)
    run = "{workers: 0}  # in one process, without Ray" if is_small else "{}"
    return TEMPLATE.format(
        data_name=_one_line(names["data"]),
        rows=facts.rows,
        fields=_one_line(", ".join(facts.fields)),
        machine=machine,
        minutes=max(1, round(sizes.seconds / 60)),
        file=_one_line(names["file"]),
        output=_path(names["output"]),
        title=_quoted(f"{names['data']}, held-out rows"),
        data=_quoted(names["data"]),
        tokenizer=_quoted(names["tokenizer"]),
        tokenizer_note=_tokenizer_note(facts),
        template_note=_template_note(facts, is_guessed=names["is_guessed"]),
        prompt=_quoted(facts.prompt),
        response=_quoted(facts.response),
        held_out_share=facts.held_out_share,
        max_length=sizes.max_length,
        length_note=_length_note(facts, sizes),
        eos_bucket=sizes.eos_bucket,
        examples_per_shard=EXAMPLES_PER_SHARD,
        run=run,
        probe_run="{workers: 0, gpus_per_probe: 1}" if gpus else run,
        replicas=sizes.replicas,
        sizes="tiny, small, base, large, 8b",
        size=sizes.size,
        positions=-(-(sizes.max_length + sizes.gen_length) // 64) * 64,
        base_steps=sizes.base_steps,
        batch_size=sizes.batch_size,
        precision="mixed" if machine.is_bf16_fast else "fp32",
        decode_precision="mixed" if machine.is_bf16_fast else "fp32",
        every=sizes.every,
        shards=sizes.shards,
        decodes=sizes.decodes,
        looks=sizes.looks,
        decode_steps=list(sizes.decode_steps),
        rollout_run="{workers: 0, gpus_per_rollout: 1}" if gpus else "{workers: 0}",
        steps=sizes.steps,
        judge=judge,
        judge_note=JUDGES[judge],
        gen_length=sizes.gen_length,
        limit=f"\n        limit: {MAX_ASKED}" if num_held_out > 1.5 * MAX_ASKED else "",
        few=few,
        many=many,
        few_steps=few - 1,
        many_steps=many - 1,
        eval_run="{workers: 0, gpus_per_worker: 1}" if gpus else "{workers: 0}",
    )


def check_recipe(text: str) -> None:
    """Raise ValueError unless `remask run` takes this text."""
    with tempfile.TemporaryDirectory(prefix="remask-recipe-") as folder:
        path = Path(folder, "recipe.yaml")
        path.write_text(text, "utf-8")
        recipe = load_recipe(RunRecipe, path, [])
        own = {name: f"{path}:{name}" for name in recipe.recipes}
        find_recipes([stage.split() for stage in recipe.stages], path.parent, own)


def _check_target(target: Path) -> None:
    if target.exists():
        raise ValueError(f"{target} exists; choose another file or remove it")
    if not target.parent.is_dir():
        raise ValueError(f"cannot write {target}: there is no folder {target.parent}")


def _template_note(facts: TextFacts, *, is_guessed: bool) -> str:
    if not is_guessed:
        return "Templates over the fields of a row."
    note = "Templates, guessed from the fields of the rows: change them as you like."
    if facts.prompt:
        return note
    return f"{note} Without a prompt, no response is right or wrong by itself."


def _tokenizer_note(facts: TextFacts) -> str:
    notes = []
    if facts.added:
        notes.append(f"it gets {' and '.join(facts.added)}, which it lacks")
    if facts.unknown_share:
        notes.append(f"it does not know {facts.unknown_share:.1%} of the tokens")
    if not facts.is_written_back:
        notes.append("it does not write text back exactly as it was")
    return f"  # {'; '.join(notes)}" if notes else ""


def _length_note(facts: TextFacts, sizes: Sizes) -> str:
    quantiles = [round(float(x)) for x in facts.tokens_at(0.5, 0.9, 1.0)]
    note = "tokens of a row: half have up to {}, nine in ten up to {}, the longest {}"
    note = note.format(*quantiles) if len(set(quantiles)) > 1 else "tokens of a row"
    if sizes.left_out_share:
        note += f"; {sizes.left_out_share:.1%} of the rows are longer and left out"
    return note


def _one_line(text: str) -> str:
    """Text for a comment."""
    line = " ".join(text.split())
    return "".join(x if x.isprintable() else "?" for x in line)


def _quoted(text: str) -> str:
    """Text as YAML in double quotes, in one line."""
    return yaml.safe_dump(text, default_style='"', width=1 << 20, allow_unicode=True).strip()


def _path(path: str) -> str:
    """A folder as it is written in YAML and in a stage.

    Raises:
        ValueError: It has characters that would have to be quoted in different ways.
    """
    if not all(x.isalnum() or x in "/._-+~@" for x in path) or path[:1] in ("", "-"):
        raise ValueError(
            f"the output folder may have letters, digits and / . _ - + ~ @ only, got {path!r}"
        )
    return path
