"""A small data set to train on."""

import pytest

from remask.pipeline import build
from remask.pipeline.recipe import BuildRecipe, ProposalConfig, RunConfig
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.trajectory import TrajectoryConfig


@pytest.fixture(scope="session")
def boards(tmp_path_factory):
    """4×4 boards in a few shards."""
    output = tmp_path_factory.mktemp("boards") / "data"
    recipe = BuildRecipe(
        output=str(output),
        source=SudokuSource(side=4, train=240, held_out=48),
        trajectories=TrajectoryConfig(horizon=4, noisy_count=(0, 8), doubt_share=0.1),
        proposal=ProposalConfig(kind="wrong_digit"),
        examples_per_shard=50,
        run=RunConfig(workers=0),
    )
    build.run(recipe)
    return output
