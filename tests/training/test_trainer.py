"""Whole training runs under real DeepSpeed: what they give, and that kills change nothing."""

import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from remask.models import HistoryConfig, SudokuConfig, SudokuMDM, load, save
from remask.models.checkpoints.adapter import has_adapter
from remask.models.history import HistoryState
from remask.pipeline import build
from remask.pipeline.edits import ShapePairs
from remask.pipeline.edits.text import WordText
from remask.pipeline.recipe import BuildRecipe, ProposalConfig, RunConfig
from remask.pipeline.runtime.recipes import load_recipe
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.trajectory import TrajectoryConfig
from remask.training.dry_run import make_outline
from remask.training.merge import main as merge_command
from remask.training.recipe import TrainRecipe
from remask.training.run.disk_space import checkpoint_bytes
from remask.training.run.folder import RunFolder
from tests.pipeline.pictures import write_tokenizer
from tests.training.data import write_data_set
from tests.training.runs import (
    LLADA,
    MODEL,
    finish,
    kill_at,
    log_lines,
    losses,
    run_ranks,
    run_together,
    start_ranks,
    write_recipe,
)

# Small weights stay whole unless DeepSpeed is told otherwise.
DIVIDED = {
    "zero_stage": 3,
    "deepspeed": {"zero_optimization": {"stage3_param_persistence_threshold": 0}},
}


LUMINA = {
    "kind": "lumina", "d_model": 32, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2,
    "mlp_hidden_size": 48, "max_sequence_length": 64, "vocab_size": 192, "mask_token_id": 1,
    "layout": {
        "image": {
            "code_offset": 64, "num_codes": 128, "newline_id": 2, "begin_id": 3, "end_id": 4
        },
        "unconditional_id": 5, "answer_id": None, "answer_end_id": None, "text_end_id": 6,
    },
}  # fmt: skip
EDITING = {
    "kind": "rm", "edit_weight": 2.0, "text_dropout": 0.3, "image_dropout": 0.3,
    "unlikelihood_weight": 0.5, "ordering_weight": 0.1,
}  # fmt: skip
WEIGHTED = {
    "kind": "rm", "edit_weight": 1.7, "state_weights": {"reveal": 0.3, "mask": 2.5, "keep": 0.9}
}  # fmt: skip


def write_edits(folder):
    """Shards of image edits, as their pipeline makes them."""
    pairs = ShapePairs(train=48, held_out=4)
    pictures = [pairs.pair("train", i).source for i in range(16)]
    tokenizer = write_tokenizer(folder / "vq", pictures, 8, 128)
    recipe = BuildRecipe(
        output=str(folder / "data"),
        source=ImageEditSource(pairs=pairs, tokenizer=tokenizer, text=WordText(size=64)),
        trajectories=TrajectoryConfig(noisy_rate=(1.0, 1.0), rules={"wrong": 1.0}),
        proposal=ProposalConfig(kind="source"),
        run=RunConfig(workers=0),
    )
    build.run(recipe)
    return recipe.output


def weights(output):
    (path,) = (Path(output) / "model").glob("*.safetensors")
    return load_file(path)


def same(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], **(tolerance or {"rtol": 0, "atol": 0}))


@pytest.fixture(scope="module")
def runs(boards, tmp_path_factory):
    """Runs of one recipe with one thing changed each: {name: output}."""
    folder = tmp_path_factory.mktemp("runs")
    base = SudokuMDM(SudokuConfig(**{k: v for k, v in MODEL.items() if k != "kind"}))
    save(base, folder / "base")
    broken = load(folder / "base")
    with torch.no_grad():
        broken.get_parameter("blocks.1.feed_out.bias").fill_(float("inf"))
    save(broken, folder / "broken")
    steep = load(folder / "base")
    with torch.no_grad():  # a finite loss whose gradient is not
        steep.get_parameter("norm.weight").fill_(1e37)
        steep.get_parameter("out.weight").zero_()
    save(steep, folder / "steep")
    adamw = {"kind": "adamw", "lr": 3e-3}
    uneven = {
        "shards": write_data_set(folder / "rows", [[3, 30, 9, 17, 5, 24, 30, 3] * 5] * 2),
        "model": LLADA,
        "objective": WEIGHTED,
        "steps": 2,
    }
    few, many = [9, 17, 5, 24, 3] * 5, [3, 30, 12] * 20
    sets = {
        "shards": [
            {"uri": write_data_set(folder / "few", [few], horizon=7), "share": 0.3},
            {"uri": write_data_set(folder / "many", [many] * 2, seed=1), "share": 0.7},
        ],
        "model": LLADA,
        "objective": WEIGHTED,
        "steps": 40,
        "save": {"every": 5},
        "held_out": {"every": 0},
    }
    edits = {
        "shards": write_edits(folder / "edits"),
        "model": LUMINA,
        "objective": EDITING,
        "optimizer": adamw,
        "history": {"positions": "editable"},
        "held_out": {"every": 0},
    }
    changes = {
        "plain": {},
        "again": {},
        "micro": {"engine": {"micro_batch_size": 4}},
        "recompute": {"engine": {"recompute": True}},
        "adamw": {"optimizer": adamw},
        "zero1": {"optimizer": adamw, "engine": {"zero_stage": 1}},
        "zero2": {
            "optimizer": adamw,
            "engine": {"zero_stage": 2, "offload": "optimizer", "micro_batch_size": 8},
        },
        "zero3": {"optimizer": adamw, "engine": {**DIVIDED, "offload": "all"}},
        "zero3-lora": {
            "model": None,
            "start": str(folder / "base"),
            "lora": {"rank": 4, "alpha": 8.0},
            "optimizer": adamw,
            "history": {"decay": 0.7},
            "engine": DIVIDED,
        },
        "edits": {**edits, "output": str(folder / "edits-plain")},
        "edits-zero3": {**edits, "engine": DIVIDED},
        "edits-bf16": {**edits, "engine": {**DIVIDED, "precision": "bf16", "recompute": True}},
        "bf16": {"optimizer": adamw, "engine": {"zero_stage": 1, "precision": "bf16"}},
        "sft": {"objective": {"kind": "sft"}},
        "pretrain": {"objective": {"kind": "pretrain"}, "log": {"tensorboard": True}},
        "spikes": {"steps": 18, "spikes": {"factor": 1.0001, "window": 3}},
        "unspiked": {"steps": 18},
        "lora": {
            "model": None,
            "start": str(folder / "base"),
            "lora": {"rank": 4, "alpha": 8.0},
            "optimizer": adamw,
            "history": {"decay": 0.7},
        },
        "inf": {"model": None, "start": str(folder / "broken")},
        "steep": {"model": None, "start": str(folder / "steep"), "engine": {"clip": 0.0}},
        "lines": {"steps": 8, "log": {"every": 4}},
        "uneven": {**uneven, "output": str(folder / "uneven")},
        "uneven-micro": {**uneven, "engine": {"micro_batch_size": 2}},
        "sets": sets,
        "long": {"steps": 200, "save": {"every": 100, "keep": 1}, "held_out": {"rows": 48}},
    }
    paths = {name: write_recipe(folder, name, boards, **x) for name, x in changes.items()}
    done = run_together(paths.values())
    return folder, done


def test_a_run_gives_checkpoints_a_log_and_a_model(runs, boards):
    folder, _ = runs
    output = folder / "plain"
    assert sorted(losses(output)) == [1, 2, 3, 4, 5, 6]
    assert [x.state.step for x in RunFolder(output).checkpoints()] == [3, 6]
    backbone = load(output / "model")
    assert backbone.history == HistoryConfig(decay=0.5)
    same(dict(backbone.state_dict()), weights(output))
    for checkpoint in RunFolder(output).checkpoints():
        load(checkpoint.path / "model")
    line = log_lines(output)[-1]
    parts = {f"{p}_{x}" for p in ("reveal", "mask", "keep") for x in ("loss", "accuracy", "count")}
    speed = {"rows_per_s", "tokens_per_s", "peak_bytes", "lr", "calibration_error"}
    assert set(line) == parts | speed | {"event", "step", "loss"}
    assert sum(line[f"{p}_count"] for p in ("reveal", "mask", "keep")) == 16 * 16
    total = sum(line[f"{p}_loss"] * line[f"{p}_count"] for p in ("reveal", "mask", "keep"))
    assert line["loss"] == pytest.approx(total / 256, rel=1e-5)
    card = (output / "model" / "README.md").read_text()
    for fact in ("| 6 of 6 |", "| 96 |", "| random weights |", '"lr": 0.01'):
        assert fact in card
    held_out = log_lines(output, "held_out")
    assert [x["step"] for x in held_out] == [3, 6]
    assert f"| exact | {held_out[-1]['exact']:.6g} |" in card


def test_the_same_recipe_gives_the_same_run(runs):
    folder, _ = runs
    assert losses(folder / "plain") == losses(folder / "again")
    same(weights(folder / "plain"), weights(folder / "again"))


@pytest.mark.parametrize("name", ["micro", "recompute"])
def test_how_a_step_is_computed_does_not_change_it(runs, name):
    folder, _ = runs
    assert losses(folder / name) == pytest.approx(losses(folder / "plain"), rel=1e-3)
    same(weights(folder / name), weights(folder / "plain"), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["zero1", "zero2", "zero3"])
def test_every_zero_stage_learns_the_same(runs, name):
    folder, _ = runs
    assert losses(folder / name) == pytest.approx(losses(folder / "adamw"), rel=1e-4)
    same(weights(folder / name), weights(folder / "adamw"), rtol=1e-3, atol=1e-3)


def test_image_edits_learn_the_same_when_divided(runs):
    """Conditions left out, both optional terms, a head of which some rows are used."""
    folder, _ = runs
    plain = losses(folder / "edits-plain")
    assert losses(folder / "edits-zero3") == pytest.approx(plain, rel=1e-4)
    same(weights(folder / "edits-zero3"), weights(folder / "edits-plain"), rtol=1e-3, atol=1e-3)
    assert losses(folder / "edits-bf16") == pytest.approx(plain, rel=0.05)
    line = log_lines(folder / "edits-zero3")[-1]
    assert line["unlikelihood_share"] > 0
    assert line["ordering_share"] > 0


@pytest.mark.parametrize("kind", ["rm", "sft"])
def test_ranks_whose_rows_differ_call_a_partitioned_head_equally_often(tmp_path, kind):
    """Logits are made in chunks; a rank with shorter rows needs fewer than the other."""
    shards = write_data_set(tmp_path / "rows", [[3, 30, 5, 24, 30, 3, 9, 17] * 4])
    changes = {
        "model": LLADA,
        "objective": {"kind": kind},
        "optimizer": {"kind": "adamw", "lr": 3e-3},
        "batch_size": 4,
        "engine": {"micro_batch_size": 1},
    }
    alone = write_recipe(tmp_path, "alone", shards, **changes)
    run_ranks(alone)
    changes["engine"] = {**changes["engine"], **DIVIDED}
    divided = write_recipe(tmp_path, "divided", shards, **changes)
    command = (
        "import sys; from remask.training.objective import chunks; chunks.CHUNK_ELEMENTS = 80; "
        "from remask.training.train import main; main(sys.argv[1:])"
    )
    run_ranks(divided, 2, how=("-c", command))
    divided_losses, wanted = losses(tmp_path / "divided"), losses(tmp_path / "alone")
    assert divided_losses == pytest.approx(wanted, rel=1e-4)


def test_zero_divides_lora_too(runs):
    folder, _ = runs
    assert losses(folder / "zero3-lora") == pytest.approx(losses(folder / "lora"), rel=1e-4)
    same(weights(folder / "zero3-lora"), weights(folder / "lora"), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_muon_learns_the_same_under_zero(boards, tmp_path):
    """DeepSpeed's Muon is compiled on first use, which takes its time."""
    changes = {"plain": {"engine": {"clip": 0.0}}, "zero1": {"engine": {"zero_stage": 1}}}
    changes["zero3"] = {"engine": DIVIDED}
    settings = {"steps": 12, "save": {"every": 12}}
    run_together(write_recipe(tmp_path, k, boards, **settings, **x) for k, x in changes.items())
    for name in ("zero1", "zero3"):
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "plain"), rel=0.02)


def test_a_loss_is_the_mean_over_all_a_step_holds_however_it_is_cut(runs):
    folder, _ = runs
    assert losses(folder / "uneven-micro") == pytest.approx(losses(folder / "uneven"), rel=1e-4)
    same(weights(folder / "uneven-micro"), weights(folder / "uneven"), rtol=1e-3, atol=1e-3)


def test_every_kind_of_run_goes_on_bit_for_bit(runs, boards):
    """Back to the checkpoint before the last, and on from there."""
    folder, _ = runs
    names = ("micro", "adamw", "zero1", "zero2", "zero3", "bf16", "sft", "spikes", "lora", "lines")
    paths = []
    for name in names:
        again = folder / f"{name}-again"
        shutil.copytree(folder / name, again)
        shutil.rmtree(again / "model")
        shutil.rmtree(max((again / "checkpoints").iterdir()))
        recipe = yaml.safe_load((folder / f"{name}.yaml").read_text())
        path = folder / f"{name}-again.yaml"
        path.write_text(yaml.safe_dump(recipe | {"output": str(again)}))
        paths.append(path)
    run_together(map(str, paths))
    for name in names:
        assert losses(folder / f"{name}-again") == losses(folder / name), name
        same(weights(folder / f"{name}-again"), weights(folder / name))
    assert sorted(losses(folder / "lines")) == [4, 8]


@pytest.mark.parametrize("name", ["plain", "adamw", "zero1", "zero2", "zero3", "bf16", "lora"])
def test_the_size_of_a_checkpoint_is_known_before(runs, name):
    """But for names, the card and scripts that DeepSpeed adds, which do not grow with a model."""
    folder, _ = runs
    recipe = load_recipe(TrainRecipe, str(folder / f"{name}.yaml"), [])
    expected = checkpoint_bytes(make_outline(recipe), recipe)
    assert 0 < RunFolder(folder / name).newest().size - expected < 100_000


def test_bf16_is_near_fp32_and_saved_as_such(runs):
    folder, _ = runs
    assert losses(folder / "bf16") == pytest.approx(losses(folder / "adamw"), rel=0.02)
    assert {x.dtype for x in weights(folder / "bf16").values()} == {torch.bfloat16}


def test_it_learns(runs):
    folder, _ = runs
    by_step = losses(folder / "long")
    first, last = ([by_step[i] for i in steps] for steps in (range(1, 11), range(191, 201)))
    assert sum(last) < 0.5 * sum(first)
    early, late = (
        log_lines(folder / "long", "held_out")[0],
        log_lines(folder / "long", "held_out")[-1],
    )
    assert late["right"] > max(0.7, early["right"])
    assert late["loss"] < early["loss"]


def test_the_newest_and_the_best_are_kept(runs):
    folder, _ = runs
    scores = {x["step"]: (x["exact"], -x["loss"]) for x in log_lines(folder / "long", "held_out")}
    saved = {step: scores[step] for step in (100, 200)}
    best = max(saved, key=lambda step: saved[step])
    kept = [x.state.step for x in RunFolder(folder / "long").checkpoints()]
    assert kept == sorted({best, 200})


@pytest.mark.parametrize("kind", ["sft", "pretrain"])
def test_baselines_train_on_the_same_rows_without_history(runs, kind):
    folder, _ = runs
    lines = log_lines(folder / kind)
    assert all("mask_loss" not in x and "keep_loss" not in x for x in lines)
    assert all(x["reveal_count"] > 0 for x in lines)
    assert load(folder / kind / "model").history.variant == "none"


def test_tensorboard_has_what_the_log_has(runs):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = runs
    board = EventAccumulator(str(folder / "pretrain" / "tensorboard"))
    board.Reload()
    shown = {x.step: x.value for x in board.Scalars("train/loss")}
    assert shown == pytest.approx(losses(folder / "pretrain"))
    assert not (folder / "plain" / "tensorboard").exists()


def test_spikes_are_left_out_and_counted(runs):
    folder, _ = runs
    lines = log_lines(folder / "spikes")
    assert [x["skipped"] for x in lines[:3]] == [0, 0, 0]
    assert lines[-1]["skipped"] >= 1
    spiked, plain = losses(folder / "spikes"), losses(folder / "unspiked")
    first = next(x["step"] for x in lines if x["skipped"])
    assert all(spiked[i] == plain[i] for i in range(1, first + 1))
    assert spiked[first + 1] != plain[first + 1]


def test_lora_is_saved_as_an_adapter_and_merges(runs, tmp_path):
    folder, _ = runs
    output = folder / "lora" / "model"
    assert {x.name for x in output.iterdir()} == {
        "README.md",
        "SHA256SUMS",
        "adapter.json",
        "adapter_config.json",
        "adapter_model.safetensors",
        "inputs.json",
    }
    adapted, base = load(output), load(folder / "base")
    assert has_adapter(adapted)
    assert adapted.history.decay == 0.7
    frozen = dict(base.state_dict())
    for name, x in adapted.state_dict().items():
        if "lora" not in name:
            assert torch.equal(x, frozen[name.replace(".base_layer", "")])
    boards = torch.randint(0, 5, (3, 16), generator=torch.Generator().manual_seed(0))
    embeds = HistoryState(adapted.history, adapted.token_embedding).update(boards)
    with torch.no_grad():
        logits = adapted.logits(embeds)
        assert not torch.allclose(logits, base.logits(embeds), atol=1e-4)
        merge_command([str(output), str(tmp_path / "merged")])
        merged = load(tmp_path / "merged")
        assert not has_adapter(merged)
        torch.testing.assert_close(merged.logits(embeds), logits, rtol=1e-4, atol=1e-5)


def test_a_loss_that_is_no_number_stops_with_its_step_and_rows(runs):
    folder, done = runs
    assert "the loss is not a number at step 0, from rows train-0000" in done.stderr
    assert "and 8 more" in done.stderr
    assert done.stderr.count("exit 1") == 2
    assert not (folder / "inf" / "model").exists()
    assert RunFolder(folder / "inf").newest() is None


def test_a_gradient_that_is_no_number_stops_before_it_is_used(runs):
    folder, done = runs
    assert "the gradient is not a number at step 0, from rows train-0000" in done.stderr
    assert RunFolder(folder / "steep").newest() is None


def test_a_finished_run_is_left_alone(runs, boards):
    folder, _ = runs
    before = (folder / "plain" / "log.jsonl").read_bytes()
    ((_, out, _),) = run_ranks(str(folder / "plain.yaml"))
    assert "train: 6 steps done" in out
    assert (folder / "plain" / "log.jsonl").read_bytes() == before


def test_killed_anywhere_it_goes_on_as_if_nothing_had_happened(runs, boards):
    """SIGKILL at random moments, again and again, until the run gets through."""
    folder, _ = runs
    path = write_recipe(
        folder, "killed", boards, steps=200, save={"every": 20, "keep": 1}, held_out={"rows": 48}
    )
    expected = folder / "long"
    chance = random.Random(7)
    for _ in range(3):
        (process,) = start_ranks(path)
        already = max(losses(folder / "killed"), default=0)
        kill_at([process], folder / "killed", min(already + chance.randint(5, 60), 190))
        time.sleep(chance.random() / 5)
        finish([process])
    run_ranks(path)
    assert losses(folder / "killed") == losses(expected)
    same(weights(folder / "killed"), weights(expected))
    assert not list((folder / "killed" / "checkpoints").glob(".*"))


@pytest.mark.slow
def test_sigterm_saves_and_ends_cleanly(runs, boards):
    folder, _ = runs
    path = write_recipe(
        folder, "asked", boards, steps=200, save={"every": 100, "keep": 1}, held_out={"rows": 48}
    )
    (process,) = start_ranks(path)
    kill_at([process], folder / "asked", 30, signal.SIGTERM)
    ((status, out, err),) = finish([process])
    assert status == 0, err
    step = RunFolder(folder / "asked").newest().state.step
    assert f"train: stopped and saved at step {step} of 200" in out
    assert 30 <= step < 100
    run_ranks(path)
    assert losses(folder / "asked") == losses(folder / "long")
    same(weights(folder / "asked"), weights(folder / "long"))


def test_two_ranks_learn_as_one_and_may_become_one(runs, boards):
    """The rows of every step are the same, so the losses are, up to the order of additions."""
    folder, _ = runs
    path = write_recipe(folder, "pair", boards, optimizer={"kind": "adamw", "lr": 3e-3})
    run_ranks(path, 2)
    assert losses(folder / "pair") == pytest.approx(losses(folder / "adamw"), rel=1e-4)
    same(weights(folder / "pair"), weights(folder / "adamw"), rtol=1e-3, atol=1e-3)
    # Back to step 3, and on with one rank; the states of ZeRO 3 are partitioned again.
    zero = write_recipe(
        folder,
        "divided",
        boards,
        optimizer={"kind": "adamw", "lr": 3e-3},
        engine=DIVIDED,
    )
    run_ranks(zero, 2)
    for name in ("pair", "divided"):
        shutil.rmtree(folder / name / "checkpoints" / "step-00000006")
        shutil.rmtree(folder / name / "model")
    run_together([path, zero])
    for name in ("pair", "divided"):
        assert losses(folder / name) == pytest.approx(losses(folder / "adamw"), rel=1e-4)
        same(weights(folder / name), weights(folder / "adamw"), rtol=1e-3, atol=1e-3)
        assert RunFolder(folder / name).newest().state.world_size == 1


def test_two_ranks_on_two_sets_go_on_after_a_kill_as_if_nothing_had_happened(runs):
    """Neither set's rows of a batch divide among the ranks, and their epochs end at other steps."""
    folder, _ = runs
    recipe = yaml.safe_load((folder / "sets.yaml").read_text())
    del recipe["output"]
    whole, killed = (write_recipe(folder, f"sets-{x}", "", **recipe) for x in ("pair", "killed"))
    run_ranks(whole, 2)
    ranks = start_ranks(killed, 2)
    kill_at(ranks, folder / "sets-killed", 12, who=1)
    finish(ranks)
    assert RunFolder(folder / "sets-killed").newest().state.step < 40
    run_ranks(killed, 2)
    assert losses(folder / "sets-killed") == losses(folder / "sets-pair")
    same(weights(folder / "sets-killed"), weights(folder / "sets-pair"))
    # One rank reads the same rows: its losses agree up to the order of additions.
    alone, pair = losses(folder / "sets"), losses(folder / "sets-pair")
    assert pair == pytest.approx(alone, rel=1e-2)
    assert [pair[i] for i in range(1, 6)] == pytest.approx(
        [alone[i] for i in range(1, 6)], rel=1e-4
    )
