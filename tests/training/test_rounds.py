"""Rounds: a run on its own decodes, where every step follows from the recipe and its number."""

import os
import shutil
import signal

import psutil
import pytest
import torch
import yaml

from remask.models import create, fingerprint, load, save
from remask.models.config import from_mapping
from remask.pipeline import open_manifest
from remask.pipeline.rollout import rollout_units
from remask.pipeline.runtime.recipes import load_recipe
from remask.training import round_rollouts
from remask.training.launch import run as train_here
from remask.training.loader import Loader
from remask.training.plan import make_plan
from remask.training.recipe import TrainRecipe
from remask.training.rounds import RoundsConfig, data_folder, model_folder
from remask.training.run.folder import RunFolder
from remask.training.run.rounds import await_round, publish_model
from remask.training.trainer import prepared
from remask.training.world import TrainingError, World
from tests.training.runs import (
    MODEL,
    finish,
    log_lines,
    losses,
    run_ranks,
    start_command,
    start_ranks,
    wait_for,
    write_recipe,
)

ALONE = World(rank=0, size=1, local_rank=0, local_size=1)
ROLLOUT = {
    "source": {"kind": "sudoku", "side": 4, "train": 96, "held_out": 0},
    "examples_per_shard": 12,
    "decoders": {"steps": [2, 4], "margin": [0.0, -2.0]},
    "looks": 2,
    "run": {"workers": 0},
}
ROUNDS = {"share": 0.5, "every": 4, "shards": 2, "rollout": ROLLOUT}
SETTINGS = {"model": None, "steps": 12, "save": {"every": 100}, "held_out": {"every": 0}}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("start") / "model"
    save(create(MODEL), path)
    return str(path)


@pytest.fixture(scope="module")
def undisturbed(boards, start, tmp_path_factory):
    """A finished run of three rounds, by `remask train`; its folder."""
    folder = tmp_path_factory.mktemp("rounds")
    path = write_recipe(folder, "run", boards, start=start, rounds=ROUNDS, **SETTINGS)
    ((status, out, err),) = finish([start_command(path)])
    assert status == 0, err[-3000:]
    assert "train: 12 steps done" in out
    return folder / "run"


def written(folder, boards, start, name="again", **changes):
    settings = {"rounds": ROUNDS, **SETTINGS, **changes}
    return write_recipe(folder, name, boards, start=start, **settings)


def same_result(output, expected):
    assert losses(output) == losses(expected)
    names = ["model/model.safetensors"]
    for number in range(3):
        names += [f"rounds/{number:05d}/data/manifest.parquet"]
        names += [f"rounds/{number:05d}/model/model.safetensors"] * (number > 0)
    for name in names:
        assert (output / name).read_bytes() == (expected / name).read_bytes(), name


def test_each_round_is_decoded_by_the_model_that_it_begins_with(undisturbed, start):
    rounds = undisturbed / "rounds"
    checkpoints = [start, *(model_folder(rounds, number) for number in (1, 2))]
    for number, checkpoint in enumerate(checkpoints):
        manifest = open_manifest(str(data_folder(rounds, number))).collect()
        assert manifest["backbone"].to_list() == [fingerprint(checkpoint)] * 2
        assert manifest["rows"].to_list() == [24, 24]  # 12 decodes, two looks at each
    assert len({fingerprint(x) for x in (*checkpoints, undisturbed / "model")}) == 4
    assert load(model_folder(rounds, 1)).history.decay == 0.5


def test_rounds_decode_the_next_shards_and_begin_again_after_the_last(undisturbed):
    shards = [
        open_manifest(str(data_folder(undisturbed / "rounds", number))).collect()["shard"].to_list()
        for number in range(3)
    ]
    assert shards == [
        ["train-00000-00", "train-00001-00"],
        ["train-00002-00", "train-00003-00"],
        ["train-00004-00", "train-00005-00"],
    ]
    recipe = TrainRecipe(output="run", start="x", steps=24, rounds=_config(shards=4, share=1.0))
    assert [recipe.round_recipe(number).span for number in (0, 1, 2)] == [(0, 4), (4, 4), (8, 4)]
    assert [x.name for x in rollout_units(recipe.round_recipe(2))] == [
        f"train-{i:05d}-01" for i in range(4)
    ]


def _config(**changes):
    return from_mapping(RoundsConfig, ROUNDS | changes, "rounds")


def test_batches_are_half_the_named_rows_in_one_order_and_half_the_rounds(undisturbed, boards):
    recipe = load_recipe(TrainRecipe, str(undisturbed) + ".yaml", [])
    plan = make_plan(recipe, ALONE)
    fixed = Loader(plan.train).batches()
    for number in range(3):
        first = number * 4
        mixture = plan.mixture(first)
        num_fixed = mixture.first_ids[-1]
        seen = []
        for step in Loader(mixture).batches(first, first + 4):
            ids = step[0].row_ids.tolist()
            assert len(ids) == 16
            own = [x for x in ids if x < num_fixed]
            assert sorted(own) == sorted(next(fixed)[0].row_ids.tolist())
            seen += [x for x in ids if x >= num_fixed]
        assert len(seen) == len(set(seen)) == 32  # of the round's 48 rows, each at most once


def test_a_loader_may_begin_anywhere_in_a_round(undisturbed):
    plan = make_plan(load_recipe(TrainRecipe, f"{undisturbed}.yaml", []), ALONE)

    def rows(first, stop):
        loader = Loader(plan.mixture(5))
        return [step[0].row_ids.tolist() for step in loader.batches(first, stop)]

    assert len(rows(4, 8)) == 4
    assert rows(6, 8) == rows(4, 8)[2:]
    assert rows(7, 8) == rows(4, 8)[3:]


def test_the_log_says_when_a_round_begins(undisturbed):
    lines = log_lines(undisturbed, "round")
    assert [(x["step"], x["round"]) for x in lines] == [(0, 0), (4, 1), (8, 2)]


@pytest.mark.parametrize(
    "who",
    [
        "rollouts",
        pytest.param("rank", marks=pytest.mark.slow),
        pytest.param("command", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_goes_on_bit_for_bit(who, undisturbed, boards, start, tmp_path):
    """SIGKILL while the second round is trained on, then the same command again."""
    path = written(tmp_path, boards, start)
    process = start_command(path)
    wait_for(lambda: max(losses(tmp_path / "again"), default=0) >= 5, process)
    victims = {"command": process.pid}
    for below in _processes(process.pid):
        words = " ".join(below.cmdline())
        if "round_rollouts" in words:
            victims["rollouts"] = below.pid
        elif "remask.training.train --local_rank" in words:
            victims["rank"] = below.pid
    os.kill(victims[who], signal.SIGKILL)
    process.communicate(timeout=120)
    if process.returncode == 0:  # all rollouts were done already
        assert who == "rollouts"
    ((status, _, err),) = finish([start_command(path)])
    assert status == 0, err[-3000:]
    same_result(tmp_path / "again", undisturbed)


def _processes(pid):
    return psutil.Process(pid).children(recursive=True)


def test_the_launcher_and_the_rollouts_may_be_started_by_hand(undisturbed, boards, start, tmp_path):
    path = written(tmp_path, boards, start)
    ranks = start_ranks(path)
    rollouts = start_ranks(path, how=("-m", "remask.training.round_rollouts"))
    assert [x[0] for x in finish(ranks + rollouts)] == [0, 0]
    same_result(tmp_path / "again", undisturbed)


def test_two_ranks_train_on_rounds(boards, start, tmp_path):
    path = written(tmp_path, boards, start, "two", steps=8)
    rollouts = start_ranks(path, how=("-m", "remask.training.round_rollouts"))
    run_ranks(path, 2)
    assert finish(rollouts)[0][0] == 0
    assert max(losses(tmp_path / "two")) == 8


def test_with_lag_a_round_is_decoded_while_the_one_before_is_trained_on(boards, start, tmp_path):
    """Rounds 0 and 1 need the start model alone; round 2 that of round 1's beginning."""
    path = written(tmp_path, boards, start, rounds={**ROUNDS, "lag": 1}, steps=12)
    recipe = load_recipe(TrainRecipe, path, [])
    with prepared(recipe, ALONE):  # claims the output
        pass
    rollouts = start_ranks(path, how=("-m", "remask.training.round_rollouts"))
    folder = tmp_path / "again" / "rounds"
    manifests = [data_folder(folder, number) / "manifest.parquet" for number in range(3)]
    wait_for(lambda: manifests[0].exists() and manifests[1].exists(), rollouts[0])
    assert not manifests[2].exists()
    run_ranks(path)
    assert finish(rollouts)[0][0] == 0
    models = [open_manifest(str(x.parent)).collect()["backbone"].unique().item() for x in manifests]
    assert models == [fingerprint(x) for x in (start, start, model_folder(folder, 1))]
    assert recipe.content["rounds"]["lag"] == 1


def test_own_decodes_may_be_all_the_data(start, tmp_path):
    recipe = TrainRecipe(
        output=str(tmp_path / "alone"), start=start, steps=4, batch_size=8,
        rounds=_config(every=2, share=1.0, shards=1),
    )  # fmt: skip
    folder = train_here(recipe)
    assert folder.model.is_dir()
    assert "own decodes in 2 rounds" in (folder.model / "README.md").read_text()


def test_failed_rollouts_end_the_run_with_their_reason(boards, tmp_path):
    """A start model of another vocabulary."""
    torch.manual_seed(0)
    save(create(MODEL | {"side": 9}), tmp_path / "other")
    rollout = ROLLOUT | {"source": {"kind": "sudoku", "side": 4, "train": 24, "held_out": 0}}
    path = write_recipe(
        tmp_path, "wrong", boards, start=str(tmp_path / "other"), **SETTINGS,
        rounds=ROUNDS | {"rollout": rollout, "share": 1.0},
    )  # fmt: skip
    recipe = yaml.safe_load((tmp_path / "wrong.yaml").read_text())
    del recipe["shards"]
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(recipe))
    ((status, _, err),) = finish([start_command(path)])
    assert status == 2
    assert "rollouts: checkpoint" in err
    assert "has 10 ids" in err
    assert "Traceback" not in err


def test_a_refused_run_leaves_nothing_behind(start, tmp_path):
    path = written(tmp_path, tmp_path / "nowhere", start, "refused")
    ((status, _, err),) = finish([start_command(path)])
    assert status == 2
    assert "there is no data set at" in err
    assert not (tmp_path / "refused").exists()


def test_a_round_whose_model_is_gone_is_one_error(undisturbed, boards, start, tmp_path):
    output = tmp_path / "again"
    shutil.copytree(undisturbed, output)
    path = written(tmp_path, boards, start, steps=16)  # one round more
    recipe = load_recipe(TrainRecipe, path, [])
    shutil.rmtree(data_folder(output / "rounds", 2))
    shutil.rmtree(model_folder(output / "rounds", 2))
    shutil.rmtree(output / "checkpoints" / "step-00000012")
    (output / "outcome.json").unlink()
    publish_model(RunFolder(output), recipe, 2)
    if model_folder(output / "rounds", 2).exists():  # the checkpoint at step 8 is kept
        shutil.rmtree(model_folder(output / "rounds", 2))
        shutil.rmtree(output / "checkpoints")
    with pytest.raises(TrainingError, match=r"round 2 has no data, and .*00002/model.* is gone"):
        await_round(recipe, 2, RunFolder(output), ALONE, lambda: False)


def test_a_stop_request_ends_the_wait_for_a_round(boards, start, tmp_path):
    recipe = load_recipe(TrainRecipe, written(tmp_path, boards, start), [])
    assert not await_round(recipe, 0, RunFolder(tmp_path / "again"), ALONE, lambda: True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 10}, "steps, a multiple of rounds.every 4, got 10"),
        ({"steps": None, "epochs": 1.0}, "steps, a multiple of rounds.every 4, got None"),
        ({"start": None, "model": MODEL}, "rounds needs start"),
        ({"shards": None}, "rounds.share is 0.5; name shards for the rest of a batch"),
        ({"rounds": ROUNDS | {"share": 1.0}}, "leave shards out"),
        ({"rounds": ROUNDS | {"share": 0.001}}, "no row of a batch of 64"),
        ({"rounds": ROUNDS | {"every": 0}}, "rounds.every must be at least 1, got 0"),
        ({"rounds": ROUNDS | {"lag": 2}}, r"lag must be one of \[0, 1\], got 2"),
        (
            {"rounds": ROUNDS | {"rollout": ROLLOUT | {"output": "x"}}},
            r"\['output'\] follow from the run",
        ),
        (
            {"rounds": ROUNDS | {"rollout": ROLLOUT | {"looking": 2}}},
            r"rounds.rollout: unknown keys \['looking'\]",
        ),
        ({"rounds": ROUNDS | {"rollout": {}}}, r"rounds.rollout: missing keys \['source'\]"),
    ],
)
def test_wrong_rounds_are_named(changes, message):
    values = {"shards": "data", "output": "run", "start": "x", "steps": 12, "rounds": ROUNDS}
    values |= changes
    values = {key: value for key, value in values.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        from_mapping(TrainRecipe, values, "recipe")


def test_rollouts_for_another_recipes_run_are_refused(undisturbed, boards, start, tmp_path):
    """Nothing is decoded before the trainer has claimed the output for the same rounds."""
    rounds = ROUNDS | {"rollout": ROLLOUT | {"seed": 9}}
    path = written(tmp_path, boards, start, rounds=rounds)
    recipe = load_recipe(TrainRecipe, path, [f"output={undisturbed}"])
    with pytest.raises(ValueError, match="holds a run with other rounds; choose another output"):
        round_rollouts.run(recipe)


def test_rollouts_of_a_recipe_without_rounds_are_refused(boards, tmp_path, capsys):
    path = write_recipe(tmp_path, "plain", boards)
    with pytest.raises(SystemExit) as end:
        round_rollouts.main([path])
    assert end.value.code == 2
    assert "the recipe has no rounds" in capsys.readouterr().err
