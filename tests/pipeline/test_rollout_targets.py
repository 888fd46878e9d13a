"""Rollouts labelled by a checker, and with several looks at a decode."""

import dataclasses
import itertools
import json
import zlib

import numpy as np
import polars as pl
import pytest
import torch

from remask.models import LladaConfig, LladaMDM, RevisionPolicy, Sampling, revise, save
from remask.pipeline import open_manifest, read_rows, rollout, states
from remask.pipeline.plan import ROLLOUT_STAGE, Plan, plan_facts, shard_units, unit_rng
from remask.pipeline.rollout_recipe import DecodeSpread, RolloutRecipe, RolloutRun
from remask.pipeline.shards import main as shards_command
from remask.pipeline.source import read_examples
from remask.pipeline.sources.countdown import ALPHABET, CountdownSource, decode, encode
from remask.pipeline.sources.text import TextSource
from tests.models.toys import Scripted
from tests.pipeline.test_checkers import nearest_by_hand, right_rows
from tests.pipeline.test_rollout import shards_of
from tests.text_folders import lively

HERE = RolloutRun(workers=0)
SPREAD = DecodeSpread(steps=(2, 6), reveal_within=(0.5, 1.0), margin=(0.0,), temperature=(0.0, 0.7))


@pytest.fixture
def countdown(tmp_path):
    """A recipe of countdown decodes: countdown(looks=..., source=...)."""
    config = LladaConfig(
        d_model=16, n_layers=1, n_heads=2, n_kv_heads=2, mlp_hidden_size=16,
        vocab_size=len(ALPHABET), mask_token_id=0,
    )  # fmt: skip
    save(lively(LladaMDM(config), 0), tmp_path / "model")

    def recipe(**changes):
        settings = {
            "output": str(tmp_path / "data"),
            "checkpoint": str(tmp_path / "model"),
            "source": CountdownSource(train=60, held_out=8, numbers=(3, 5)),
            "decoders": SPREAD,
            "targets": "nearest_right",
            "examples_per_shard": 40,
            "run": HERE,
        }
        return RolloutRecipe(**(settings | changes))

    return recipe


@pytest.fixture
def solver(monkeypatch):
    """A model that often solves a prompt, by a solution of its own or with a slip."""
    model = Scripted(believe, len(ALPHABET))
    monkeypatch.setattr(rollout, "load", lambda *_, **__: model)
    return model


def believe(_call, tokens):
    """Logits that depend on the tokens of each row alone, [B, N, V]."""
    logits = torch.zeros(*tokens.shape, len(ALPHABET))
    for row, ids in zip(logits, tokens.numpy(), strict=True):
        text = decode(ids)
        prompt = text[: text.index(":") + 1]
        seed = zlib.crc32(prompt.encode())
        example = example_of(prompt, tokens.shape[1])
        ways = right_rows(example)
        guess = encode(ways[seed % len(ways)], ids.size)
        rng = np.random.default_rng(seed)
        if seed % 3:  # a slip, which may be seen once it stands beside other tokens
            guess[rng.integers(len(prompt), ids.size, 3)] = rng.integers(1, len(ALPHABET), 3)
        row[:] = torch.from_numpy(rng.random(row.shape)) * 3
        row[torch.arange(ids.size), torch.from_numpy(guess.astype(np.int64))] += 4
        row[:, 0] = 0.5 + 7 * rng.random(1)[0] * (ids == 0).mean()
    return logits


def example_of(prompt, length):
    source = CountdownSource(train=1, numbers=(3, 5))
    example = source.examples("train", 0, 1, np.random.default_rng(0)).example(0)
    return dataclasses.replace(
        example, target=encode(prompt, length), prompt_length=len(prompt), editable=np.ones(0)
    )


def decoded_alone(recipe, backbone):
    """Every shard's name, examples and rows, with the decode of each row made alone."""
    plan, spread = Plan(*plan_facts(recipe)), recipe.decoders
    settings = list(
        itertools.product(spread.steps, spread.reveal_within, spread.margin, spread.temperature)
    )
    for unit in shard_units(recipe):
        examples = read_examples(plan, unit.examples)
        rows = list(read_rows(f"{recipe.output}/shards/{unit.name}.parquet"))
        count = len(examples.lengths)
        assert len(rows) == count * recipe.looks
        rng = unit_rng(plan, ROLLOUT_STAGE, unit.examples, unit.replica)
        chosen = rng.integers(len(settings), size=count)
        moments = rng.random(count * recipe.looks)
        seed = int(rng.integers(1 << 63))
        for i in range(count):
            example = examples.example(i)
            steps, reveal_within, margin, temperature = settings[chosen[i]]
            made = revise(
                backbone,
                torch.tensor(np.where(example.editable, 0, example.target)[None].astype(np.int64)),
                torch.tensor(example.editable[None]),
                policy=RevisionPolicy(
                    reveal_within=reveal_within,
                    margin=margin,
                    patience=spread.patience,
                    sampling=Sampling(temperature=temperature),
                ),
                max_steps=steps,
                seed=seed,
                row_ids=torch.tensor([i]),
            )
            looks = slice(i * recipe.looks, (i + 1) * recipe.looks)
            yield unit.name, example, made, rows[looks], moments[looks]


@pytest.mark.parametrize("looks", [1, 3])
def test_a_row_ends_at_its_own_right_end_or_at_the_nearest_solution(countdown, solver, looks):
    recipe = countdown(looks=looks)
    rollout.run(recipe)
    facts, kinds = [], set()
    for name, example, made, rows, moments in decoded_alone(recipe, solver):
        end = made.tokens[0].numpy()
        is_right = decode(end) in right_rows(example)
        for row, moment in zip(rows, moments, strict=True):
            assert row.example_id == example.example_id
            assert row.step == int(moment * (int(made.stats.steps[0]) + 1))
            past = made.trajectory[: row.step + 1, 0].numpy()
            target = decode(end) if is_right else nearest_by_hand(example, past[-1], end)
            assert decode(row.target) == target
            shown = states(row)
            assert np.array_equal(shown[: row.step + 1], past)
            assert (shown[row.step + 1 :] == row.target).all()
            wrong = int(((past[-1] != 0) & (past[-1] != row.target)).sum())
            passes = int(made.stats.forward_passes[0])
            facts.append((name, wrong, int(example.editable.sum()), passes, is_right))
            kinds.add((is_right, decode(row.target) == decode(example.target)))
    assert len(kinds) == 4  # right and not, the given target and another
    columns = ["shard", "wrong", "editable", "passes", "is_right"]
    expected = pl.DataFrame(facts, schema=columns, orient="row").group_by("shard").agg(
        pl.len().alias("rows"),
        (pl.sum("wrong") / pl.sum("editable")).alias("wrong_share"),
        pl.mean("passes").alias("mean_passes"),
        pl.mean("is_right").alias("already_right"),
    ).sort("shard")  # fmt: skip
    table = open_manifest(recipe.output).collect()
    for name in ("rows", "wrong_share", "mean_passes", "already_right"):
        assert table[name].to_list() == pytest.approx(expected[name].to_list(), abs=1e-4)
    assert set(table["unchecked"]) == {0}


def test_shards_of_several_looks_are_sound(countdown, capsys):
    recipe = countdown(looks=4)
    rollout.run(recipe)
    with pytest.raises(SystemExit, match="0"):
        shards_command([recipe.output, "verify"])
    assert "3 shards, 272 rows: all sound" in capsys.readouterr().out


def test_targets_alone_change_the_labels(countdown, solver, tmp_path):
    """The same decodes and moments, whichever targets label them."""
    given = countdown(output=str(tmp_path / "given"), targets="given")
    nearest = countdown(output=str(tmp_path / "nearest"))
    for recipe in (given, nearest):
        rollout.run(recipe)
    changed = 0
    for name in open_manifest(given.output).collect()["path"]:
        both = (read_rows(f"{recipe.output}/{name}") for recipe in (given, nearest))
        for a, b in zip(*both, strict=True):
            assert np.array_equal(states(a)[: a.step + 1], states(b)[: b.step + 1])
            changed += not np.array_equal(a.target, b.target)
    assert changed > 10
    shares = [open_manifest(x.output).collect()["wrong_share"].mean() for x in (nearest, given)]
    assert shares[0] < shares[1]


def test_bytes_do_not_depend_on_the_batch_size_or_the_workers(countdown, tmp_path):
    runs = {
        "small": RolloutRun(workers=0, tokens_per_batch=1),
        "large": RolloutRun(workers=0, tokens_per_batch=1 << 20),
        "ray": RolloutRun(workers=2),
    }
    for name, run in runs.items():
        rollout.run(countdown(output=str(tmp_path / name), looks=2, run=run))
    small, large, ray = (shards_of(tmp_path / name) for name in runs)
    assert len(small) == 4
    assert small == large == ray


class Brittle:
    """A checker that fails on answers with a "9" and on states with a "+"."""

    def __init__(self, inner):
        self.inner = inner

    def check_machine(self):
        self.inner.check_machine()

    def is_right(self, example, answer):
        if "9" in decode(answer[example.prompt_length :]):
            raise KeyError("nine")
        return self.inner.is_right(example, answer)

    def nearest(self, example, state, end):
        if "+" in decode(state):
            raise ZeroDivisionError
        return self.inner.nearest(example, state, end)


def test_a_checker_that_fails_is_counted_and_the_given_target_kept(countdown, solver, monkeypatch):
    make = CountdownSource.checker
    monkeypatch.setattr(CountdownSource, "checker", lambda source: Brittle(make(source)))
    recipe = countdown(looks=2)
    with pytest.warns(RuntimeWarning, match="a checker failed: .*; such decodes count"):
        summary = rollout.run(recipe)
    failed, right, kept = 0, 0, 0
    for _, example, made, rows, _ in decoded_alone(recipe, solver):
        end = made.tokens[0].numpy()
        has_nine = "9" in decode(end[example.prompt_length :])
        is_right = not has_nine and decode(end) in right_rows(example)
        has_failed = has_nine
        for row in rows:
            state = states(row)[row.step]
            if not is_right and "+" in decode(state):
                assert np.array_equal(row.target, example.target)
                has_failed, kept = True, kept + 1
            elif not is_right:
                assert decode(row.target) == nearest_by_hand(example, state, end)
        failed, right = failed + has_failed, right + is_right
    table = open_manifest(recipe.output).collect()
    assert table["unchecked"].sum() == failed
    assert (table["already_right"] * table["rows"]).sum() / 2 == pytest.approx(right, abs=1e-3)
    assert min(failed, right, kept) > 0
    note = f"the checker failed on {failed} decodes, which count as not right"
    assert note in str(summary)
    assert note in str(rollout.run(recipe))


@pytest.mark.parametrize("looks", [0, 65])
def test_a_number_of_looks_has_limits(countdown, looks):
    with pytest.raises(ValueError, match=rf"looks must lie in \[1, 64\], got {looks}"):
        countdown(looks=looks)


def test_a_source_without_a_checker_has_the_given_targets_alone(countdown):
    source = TextSource(data="rows.jsonl", tokenizer="letters")
    assert countdown(source=source, targets="given").source.checker() is None
    message = "source.kind text has no checker .*; set targets: given"
    with pytest.raises(ValueError, match=message):
        countdown(source=source)


@pytest.mark.parametrize("closed", [True, False])
def test_a_manifest_of_decodes_from_before_checkers_is_read(countdown, tmp_path, closed):
    rollout.run(countdown(targets="given"))
    path = tmp_path / "data" / "manifest.parquet"
    table = pl.read_parquet(path)
    if closed:
        table.drop("unchecked").write_parquet(path)
    else:
        path.unlink()
        for row in table.drop("unchecked").iter_rows(named=True):
            (tmp_path / "data" / "rows").mkdir(exist_ok=True)
            (tmp_path / "data" / "rows" / f"{row['shard']}.json").write_text(json.dumps(row))
    assert open_manifest(str(tmp_path / "data")).collect().equals(table)
    assert set(table["unchecked"]) == {0}
