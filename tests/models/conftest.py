"""What several tests of models share."""

import pytest
import torch

from remask.models import SudokuConfig, SudokuMDM


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return SudokuMDM(SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)).eval()
