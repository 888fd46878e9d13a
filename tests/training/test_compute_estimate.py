"""Forward passes and GPU hours beside formulas that are written out."""

import json
import re

import pytest
import torch

from remask.models import LladaConfig, LladaMDM
from remask.models.checkpoints.adapter import add_lora
from remask.training import launch
from remask.training.compute_estimate import Speed, forward_flops, training_factor
from tests.training.runs import write_recipe
from tests.training.test_memory_estimate import LLADA_8B, SHAPE, make_models, make_recipe

OWN = "training/recipes/llada_math_own.yaml"
WEIGHTS = 8_015_581_184 - 126_464 * 4096  # all but the embedding, of which rows are looked up


@pytest.fixture
def config_only(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLADA_8B))
    return str(tmp_path)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("length", [8, 64])
def test_a_forward_pass_is_two_operations_per_weight_and_token_and_attention(tied, length):
    with torch.device("meta"):
        model = LladaMDM(LladaConfig(**SHAPE, weight_tying=tied))
    embedding = model.token_embedding.numel()
    weights = sum(x.numel() for x in model.parameters()) - (0 if tied else embedding)
    attention = 4 * SHAPE["n_layers"] * SHAPE["d_model"] * length**2
    expected = 2 * weights * length + attention
    assert forward_flops(model, length) == pytest.approx(expected, rel=0.02)  # norms have weights


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_other_backbones_are_counted_too(kind):
    _, outline = make_models(kind)
    blocks = sum(x.numel() for x in outline.blocks.parameters() if x.ndim == 2)
    assert forward_flops(outline, 16) > 2 * 16 * blocks


def test_a_training_step_costs_three_forward_passes_or_four_or_fewer_with_adapters():
    _, outline = make_models("llada")
    assert training_factor(outline, make_recipe()) == 3
    assert training_factor(outline, make_recipe(engine={"recompute": True})) == 4
    with torch.device("meta"):
        add_lora(outline, 4, 8.0)
    assert 2 < training_factor(outline, make_recipe()) < 2.5


def test_hours_follow_from_speed_and_utilisation():
    assert Speed(gpu_tflops=100, utilisation=0.5).hours(3600 * 100e12) == (
        "3.60e+17 FLOP, 2 GPU hours at 50% of 100 TFLOP/s"
    )
    with pytest.raises(ValueError, match=r"utilisation must lie in \(0, 1\], got 30"):
        Speed(utilisation=30)


def gpu_hours(out, stage):
    return float(re.search(rf"# {stage}: .*, (\S+) GPU hours", out).group(1))


def test_rounds_of_llada_can_be_planned_from_its_config_alone(config_only, capsys):
    options = ["--dry-run", "--ranks", "2", "--length", "1024", "--gpu-memory", "80"]
    launch.main([OWN, f"start={config_only}", "shards=nowhere", *options])
    out = capsys.readouterr().out
    assert "# nowhere is not built yet: rows are not known" in out
    assert "# fits 80 GB, with" in out
    assert "# rounds: 5 of 900 steps; each has at most 3,712 decodes and 14,848 rows, of " in out
    assert "which 14,400 are drawn" in out
    assert "at most 18,560 decodes of 97 forward passes on average, 1,800,320 passes" in out
    assert "4,500 steps of 32 rows of 1024 tokens, 4 forward passes a row" in out
    assert out.count("GPU hours at 30% of 989 TFLOP/s") == 2
    per_row = 2 * WEIGHTS * 1024 + 4 * 32 * 4096 * 1024**2
    per_hour = 3600 * 989e12 * 0.3
    assert gpu_hours(out, "rollouts") == pytest.approx(1_800_320 * per_row / per_hour, rel=0.01)
    assert gpu_hours(out, "training") == pytest.approx(4500 * 32 * 4 * per_row / per_hour, rel=0.01)


def test_speed_may_be_given(config_only, capsys):
    options = ["--dry-run", "--length", "512", "--gpu-tflops", "312", "--utilisation", "0.4"]
    launch.main([OWN, f"start={config_only}", "shards=nowhere", *options])
    assert capsys.readouterr().out.count("GPU hours at 40% of 312 TFLOP/s") == 2
    with pytest.raises(SystemExit) as end:
        launch.main([OWN, f"start={config_only}", *options, "--gpu-tflops", "0"])
    assert end.value.code == 2
    assert "gpu_tflops must be above 0, got 0" in capsys.readouterr().err


def test_epochs_of_shards_that_are_not_built_give_the_cost_of_a_step(config_only, capsys):
    recipe = "training/recipes/llada_math_full.yaml"
    launch.main([recipe, f"start={config_only}", "shards=nowhere", "--dry-run", "--length", "1024"])
    out = capsys.readouterr().out
    assert "# nowhere is not built yet: steps and rows are not known" in out
    assert "# training: steps are not known; one has 32 rows of 1024 tokens" in out
    assert "rounds:" not in out.partition("# ")[2]


def test_built_shards_give_steps_and_the_mean_length(boards, tmp_path, capsys):
    launch.main([write_recipe(tmp_path, "dry", boards, steps=None, epochs=2), "--dry-run"])
    out = capsys.readouterr().out
    assert "# training: 30 steps of 16 rows of 16 tokens, 3 forward passes a row: " in out
