"""What a recipe adds to DeepSpeed's config is refused before anything starts."""

import pytest

from remask.training.deepspeed_config import check_deepspeed
from remask.training.launch import main
from remask.training.recipe import EngineConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"zero_optimization": 5}, "must be a mapping, not int"),
        ({"zero_optimization": {"overlap_comm": "maybe"}}, "overlap_comm Input should be a valid"),
        ({"zero_optimization": {"no_such": 1}}, "no_such Extra inputs are not permitted"),
        ({"zero_optimization": {"offload_optimizer": 3}}, "offload_optimizer Input should be"),
        ({"aio": [1]}, "'list' object has no attribute 'get'"),
        ({"checkpoint": 3}, "'int' object has no attribute 'get'"),
        ({"communication_data_type": "fp99"}, "Invalid communication_data_type"),
        ({"amp": {"enabled": True}}, "removed"),
        ({"steps_per_print": "x"}, "steps_per_print must be int, got 'x'"),
        ({"gradient_predivide_factor": "x"}, "gradient_predivide_factor must be float, got 'x'"),
        ({"dump_state": [1]}, r"dump_state must be bool, got \[1\]"),
    ],
)
def test_sections_that_deepspeed_does_not_take_are_named(values, message):
    with pytest.raises(ValueError, match=f"^engine.deepspeed: .*{message}"):
        check_deepspeed(EngineConfig(deepspeed=values, zero_stage=1))


def test_sections_that_it_takes_pass():
    check_deepspeed(EngineConfig())
    zero = {"overlap_comm": True, "stage3_param_persistence_threshold": 0}
    check_deepspeed(EngineConfig(zero_stage=3, deepspeed={"zero_optimization": zero}))
    check_deepspeed(EngineConfig(deepspeed={"gradient_predivide_factor": 2, "dump_state": True}))


@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_the_command_says_so_in_a_line(option, tmp_path, capfd):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        f"shards: {tmp_path}\noutput: {tmp_path}/run\nmodel: {{kind: sudoku}}\nsteps: 1"
    )
    with pytest.raises(SystemExit, match="2"):
        main([str(path), "engine.deepspeed.aio=[1]", *option])
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith(
        "remask train: engine.deepspeed: DeepSpeed refuses"
    )
    assert not (tmp_path / "run").exists()
