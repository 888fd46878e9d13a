"""Which losses are spikes, by hand; whole runs that skip are in test_trainer.py."""

import pytest

from remask.training.recipe import SpikeConfig
from remask.training.spikes import SpikeFilter
from remask.training.world import TrainingError

CONFIG = SpikeConfig(factor=2.0, window=3)


def test_a_loss_above_a_multiple_of_the_recent_median_is_a_spike():
    spikes = SpikeFilter(CONFIG)
    assert not any(spikes.is_spike(x) for x in (1.0, 100.0, 3.0))  # until the window is full
    assert not spikes.is_spike(6.0)  # 2 × the median of 1, 100, 3
    assert spikes.recent_losses == (100.0, 3.0, 6.0)
    assert spikes.is_spike(12.1)
    assert spikes.recent_losses == (100.0, 3.0, 6.0)  # what is skipped is not compared with


def test_the_losses_of_a_checkpoint_continue_the_window():
    assert SpikeFilter(CONFIG, (1.0, 1.0, 1.0)).is_spike(2.5)
    assert not SpikeFilter(CONFIG, (1.0, 1.0)).is_spike(2.5)


def test_without_a_config_nothing_is_skipped_or_kept():
    spikes = SpikeFilter(None)
    assert not any(spikes.is_spike(x) for x in (1.0, 1.0, 1e9))
    assert spikes.recent_losses == ()


def test_a_loss_that_stays_high_ends_the_run():
    spikes = SpikeFilter(CONFIG, (1.0, 1.0, 1.0))
    for step, num_skipped in ((1, 2), (2, 0), (3, 2), (4, 1)):  # a step without skips starts again
        spikes.check_progress(step, num_skipped)
    with pytest.raises(TrainingError, match="above 2.0 times its median for 4 micro-batches up to"):
        spikes.check_progress(5, 1)
