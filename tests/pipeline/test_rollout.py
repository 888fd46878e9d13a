"""A checkpoint's own decodes as shards: the decoder's states, the same bytes whatever happens."""

import itertools
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from remask.models import (
    LladaConfig,
    LladaMDM,
    RevisionPolicy,
    Sampling,
    SudokuConfig,
    SudokuMDM,
    fingerprint,
    load,
    revise,
    save,
)
from remask.models.checkpoints.checkpoint import trained_history
from remask.pipeline import open_manifest, read_rows, rollout, states
from remask.pipeline.edits import ShapePairs
from remask.pipeline.plan import ROLLOUT_STAGE, Plan, plan_facts, shard_units, unit_rng
from remask.pipeline.rollout_recipe import DecodeSpread, RolloutRecipe, RolloutRun
from remask.pipeline.runtime.recipes import make_recipe
from remask.pipeline.shards import main as shards_command
from remask.pipeline.shards import tv_bound
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.text import TextSource
from tests.models.toys import Scripted
from tests.pipeline.pictures import write_tokenizer
from tests.pipeline.test_build import Killed, files
from tests.text_folders import lively, write_llada, write_rows
from tests.training.runs import run_together, write_recipe

SPREAD = DecodeSpread(steps=(2, 5), margin=(0.0, -3.0), temperature=(0.0, 0.7))
HERE = RolloutRun(workers=0)
BOARD = "1234341221434321"


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    model = SudokuMDM(SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16))
    with torch.no_grad():
        for x in model.parameters():
            x.mul_(3)  # so that some tokens are less likely than MASK
    save(model, tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def toy(tmp_path, checkpoint):
    """A recipe of a few short decodes: toy(output=..., seed=...)."""

    def recipe(**changes):
        settings = {
            "output": str(tmp_path / "data"),
            "checkpoint": checkpoint,
            "source": SudokuSource(side=4, train=50, held_out=10),
            "decoders": SPREAD,
            "examples_per_shard": 20,
            "replicas": 2,
            "run": HERE,
        }
        return RolloutRecipe(**(settings | changes))

    return recipe


@pytest.fixture
def sayings(tmp_path):
    """A recipe of texts of different lengths."""
    data = write_rows(
        tmp_path / "rows.jsonl",
        *({"p": "x" * (i % 5), "r": "yes" * (1 + i % 4)} for i in range(30)),
    )
    model = write_llada(tmp_path / "llada")
    source = TextSource(data=data, tokenizer=model, prompt="{p}", response="{r}")
    settings = {"output": str(tmp_path / "data"), "checkpoint": model, "source": source}
    return RolloutRecipe(**settings, decoders=SPREAD, run=HERE)


def shards_of(folder):
    """Files of a data set that its recipe alone determines."""
    return {name: x for name, x in files(folder).items() if name.startswith(("shards", "manifest"))}


def decoded_alone(recipe, mask_id):
    """Every shard's rows as they are stored, with the whole decode of each row, made alone."""
    plan = Plan(*plan_facts(recipe))
    backbone = load(recipe.checkpoint, history=trained_history(recipe.checkpoint))
    spread = recipe.decoders
    settings = list(
        itertools.product(spread.steps, spread.reveal_within, spread.margin, spread.temperature)
    )
    for unit in shard_units(recipe):
        rows = list(read_rows(f"{recipe.output}/shards/{unit.name}.parquet"))
        rng = unit_rng(plan, ROLLOUT_STAGE, unit.examples, unit.replica)
        chosen, moment = rng.integers(len(settings), size=len(rows)), rng.random(len(rows))
        seed = int(rng.integers(1 << 63))
        for i, row in enumerate(rows):
            steps, reveal_within, margin, temperature = settings[chosen[i]]
            decode = revise(
                backbone,
                torch.tensor(np.where(row.editable, mask_id, row.target)[None].astype(np.int64)),
                torch.tensor(row.editable[None]),
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
            yield unit.name, row, decode, moment[i]


@pytest.mark.parametrize("kind", ["toy", "sayings"])
def test_a_row_is_the_past_of_its_decode_and_then_the_target(kind, request):
    recipe = request.getfixturevalue(kind)
    recipe = recipe() if kind == "toy" else recipe
    rollout.run(recipe)
    mask_id = recipe.source.vocabulary().mask_id
    facts = []
    for name, row, decode, moment in decoded_alone(recipe, mask_id):
        num_states = int(decode.stats.steps[0]) + 1
        assert row.step == int(moment * num_states)
        shown = states(row)
        past = decode.trajectory[: row.step + 1, 0].numpy()
        assert np.array_equal(shown[: row.step + 1], past)
        assert (shown[row.step + 1 :] == row.target).all()
        assert (shown[:, ~row.editable] == row.target[~row.editable]).all()
        is_wrong = (past[-1] != mask_id) & (past[-1] != row.target)
        is_right = (decode.tokens[0].numpy() == row.target).all()
        passes = int(decode.stats.forward_passes[0])
        facts.append((name, int(is_wrong.sum()), int(row.editable.sum()), passes, bool(is_right)))
    assert sum(x[1] for x in facts) > 0
    columns = ["shard", "wrong", "editable", "passes", "is_right"]
    expected = pl.DataFrame(facts, schema=columns, orient="row").group_by("shard").agg(
        (pl.sum("wrong") / pl.sum("editable")).alias("wrong_share"),
        pl.mean("passes").alias("mean_passes"),
        pl.mean("is_right").alias("already_right"),
    ).sort("shard")  # fmt: skip
    table = open_manifest(recipe.output).collect()
    for name in ("wrong_share", "mean_passes", "already_right"):
        assert table[name].to_list() == pytest.approx(expected[name].to_list(), abs=1e-4)


def test_the_manifest_says_where_rows_come_from(toy, capsys):
    recipe = toy()
    summary = rollout.run(recipe)
    assert (summary.units, summary.new_units, summary.rows) == (7, 7, 110)
    table = open_manifest(recipe.output).collect()
    assert set(table["origin"]) == {"decodes"}
    assert set(table["backbone"]) == {fingerprint(recipe.checkpoint)}
    assert set(table["horizon"]) == {7}
    assert {json.loads(x)["steps"] == [2, 5] for x in table["decoder"]} == {True}
    assert set(table["proposal"]) == set(table["mean_tv"]) == {None}
    assert set(table["dropped_runs"]) == {0}
    assert tv_bound(table.lazy()).is_empty()
    with pytest.raises(SystemExit, match="0"):
        shards_command([recipe.output, "verify"])
    assert "7 shards, 110 rows: all sound" in capsys.readouterr().out


def test_a_limit_on_segments_drops_the_oldest_runs_alone(toy, tmp_path):
    whole, short = toy(), toy(output=str(tmp_path / "short"), max_segments=2)
    rollout.run(whole)
    rollout.run(short)
    table = open_manifest(short.output).collect()
    assert set(table["segments"]) == {2}
    assert table["dropped_runs"].sum() > 0
    for name in table["path"]:
        rows = (list(read_rows(f"{recipe.output}/{name}")) for recipe in (whole, short))
        for a, b in zip(*rows, strict=True):
            assert np.array_equal(states(a)[a.step :], states(b)[b.step :])


@pytest.mark.parametrize("kind", ["toy", "sayings"])
def test_bytes_do_not_depend_on_the_batch_size(kind, request, tmp_path):
    recipe = request.getfixturevalue(kind)
    values = vars(recipe() if kind == "toy" else recipe)
    for name, size in (("small", 1), ("large", 1 << 20)):
        run = RolloutRun(workers=0, tokens_per_batch=size)
        rollout.run(RolloutRecipe(**(values | {"output": str(tmp_path / name), "run": run})))
    assert shards_of(tmp_path / "small") == shards_of(tmp_path / "large")


def test_bytes_do_not_depend_on_the_workers(toy, tmp_path):
    rollout.run(toy(output=str(tmp_path / "here")))
    rollout.run(toy(output=str(tmp_path / "ray"), run=RolloutRun(workers=2)))
    rollout.run(toy(output=str(tmp_path / "other"), seed=1))
    here, ray, other = (shards_of(tmp_path / name) for name in ("here", "ray", "other"))
    assert len(here) == 8
    assert here == ray
    assert all(here[name] != other[name] for name in here)


def test_a_relaunch_after_a_failure_gives_the_same_bytes(toy, tmp_path, monkeypatch):
    rollout.run(toy(output=str(tmp_path / "calm")))
    make_shard, made = rollout.rollout_shard, []

    def fail_in_the_middle(*arguments):
        made.append(make_shard(*arguments))
        if len(made) == 3:
            raise Killed
        return made[-1]

    rough = toy(output=str(tmp_path / "rough"))
    with monkeypatch.context() as patch:
        patch.setattr(rollout, "rollout_shard", fail_in_the_middle)
        with pytest.raises(Killed):
            rollout.run(rough)
    assert rollout.run(rough).new_units == 4
    assert files(tmp_path / "rough") == files(tmp_path / "calm")
    assert "existed already" in str(rollout.run(rough))


def test_another_checkpoint_is_another_recipe(toy, checkpoint):
    rollout.run(toy())
    save(SudokuMDM(SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=8)), checkpoint)
    with pytest.raises(ValueError, match="another recipe .different: inputs.backbone '"):
        rollout.run(toy())


def test_decodes_without_a_mistake_are_said_to_teach_nothing(toy, tmp_path, monkeypatch):
    (tmp_path / "boards.txt").write_text(f"{BOARD}\n" * 4)
    certain = 20 * torch.eye(5)[[int(x) for x in BOARD]]
    recipe = toy(source=SudokuSource(side=4, file=str(tmp_path / "boards.txt")))
    with monkeypatch.context() as patch:
        patch.setattr(rollout, "load", lambda *_, **__: Scripted([certain], 5))
        summary = rollout.run(recipe)
    assert "no decode has a mistake left, so there is nothing to learn" in str(summary)
    assert "nothing to learn" in str(rollout.run(recipe))  # as it does when all exists
    table = open_manifest(recipe.output).filter(pl.col("rows") > 0).collect()
    assert set(table["already_right"]) == {1.0}
    assert set(table["wrong_share"]) == {0.0}


def test_decodes_start_from_the_tokens_that_a_source_gives(tmp_path):
    pairs = ShapePairs(train=6, held_out=2)
    pictures = [pairs.pair("train", i).source for i in range(6)]
    tokenizer = write_tokenizer(tmp_path / "vq", pictures, 8, 128)
    source = ImageEditSource(pairs=pairs, tokenizer=tokenizer)
    vocabulary = source.vocabulary()
    config = LladaConfig(
        d_model=16, n_layers=1, n_heads=2, n_kv_heads=2, mlp_hidden_size=16,
        vocab_size=vocabulary.size, mask_token_id=vocabulary.mask_id,
    )  # fmt: skip
    save(lively(LladaMDM(config), 0), tmp_path / "model")
    settings = {"checkpoint": str(tmp_path / "model"), "source": source, "run": HERE}
    recipe = RolloutRecipe(output=str(tmp_path / "data"), start="given", **settings)
    rollout.run(recipe)
    examples = source.examples("train", 0, 6, np.random.default_rng(0))
    assert examples.starts is not None
    rows = list(read_rows(f"{recipe.output}/shards/train-00000-00.parquet"))
    for row, start, length in zip(rows, examples.starts, examples.lengths, strict=True):
        assert np.array_equal(states(row)[0], start[:length])


def test_a_checkpoint_of_another_vocabulary_is_refused(toy, tmp_path):
    recipe = toy(source=SudokuSource(side=9, train=5, held_out=5))
    with pytest.raises(ValueError, match="has 5 ids with MASK 0, the source 10 with MASK 0; use a"):
        rollout.run(recipe)
    assert not Path(recipe.output).exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"decoders__margin": []}, "decoders.margin must have a value to draw, got none"),
        ({"decoders__steps": [3, 0]}, r"decoders.steps must lie in \[1, 2\^15\], got 0"),
        ({"decoders__reveal_within": [1.5]}, r"reveal_within must lie in \(0, 1\], got 1.5"),
        ({"decoders__temperature": [-1.0]}, "decoders.temperature must be 0 or more, got -1.0"),
        ({"max_segments": 1}, r"max_segments must lie in \[2, 256\], got 1"),
        ({"start": "given"}, "source.kind sudoku has no tokens to start from; set start: blank"),
        ({"start": "draft"}, "start: must be|start must be one of"),
    ],
)
def test_wrong_values_are_named(override, message):
    base = {"output": "out", "checkpoint": "model", "source": {"kind": "sudoku"}}
    with pytest.raises(ValueError, match=message):
        make_recipe(RolloutRecipe, base, override)


def test_a_training_reads_the_shards(toy, tmp_path, checkpoint):
    rollout.run(toy())
    changes = {"steps": 2, "model": None, "history": None, "start": checkpoint}
    path = write_recipe(tmp_path, "trained", tmp_path / "data", **changes, save={"every": 2})
    done = run_together([path])
    assert "exit" not in done.stderr, done.stderr[-2000:]
    assert (tmp_path / "trained" / "model" / "config.json").exists()
