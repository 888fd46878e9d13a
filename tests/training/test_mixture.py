"""Several shard sets in one loader: what holds for each of them, and for their batches."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remask.pipeline import read_rows, states
from remask.pipeline.format import manifest
from remask.training.loader import Loader
from remask.training.mixture import Mixture
from remask.training.shard_set import ShardSet
from tests.training.data import write_data_set

ROWS = (7, 3, 2)
"""Rows of a batch of 12 from each set: 7, 3 and 2 lanes, none of which divide among 2 ranks."""
SIZES = (106, 40, 9)


@pytest.fixture(scope="module")
def uris(tmp_path_factory):
    """Sets of 106, 40 and 9 rows; rows of two or of four segments, horizons of 4 and 300."""
    rng = np.random.default_rng(3)
    shards = [[(40, 1, 5, 60), 4], [(33, 7), 4], [(9,), 300]]
    return [
        write_data_set(
            tmp_path_factory.mktemp(f"set{i}"),
            [rng.integers(1, 30, n).tolist() for n in sizes],
            seed=i,
            horizon=horizon,
        )
        for i, (sizes, horizon) in enumerate(shards)
    ]


def mixture(uris, rows=ROWS, *, seed=0, buffer=48):
    return Mixture(tuple(ShardSet(x, "train") for x in uris), tuple(rows), seed, buffer)


def batches(uris, steps, first_step=0, *, rows=ROWS, world_size=1, micro_batches=1, **settings):
    """The batches of each step, of all ranks in order."""
    streams = [
        Loader(
            mixture(uris, rows, **settings),
            rank=rank,
            world_size=world_size,
            micro_batches=micro_batches,
        ).batches(first_step)
        for rank in range(world_size)
    ]
    return [
        [batch for part in ranks for batch in part]
        for ranks in islice(zip(*streams, strict=True), steps)
    ]


def served(*arguments, **named):
    """Row ids of each step."""
    steps = batches(*arguments, **named)
    return [[i for batch in step for i in batch.row_ids.tolist()] for step in steps]


def owners(row_ids):
    """The set of each row."""
    return (np.searchsorted(np.cumsum(SIZES), row_ids, side="right")).tolist()


def test_every_batch_has_each_sets_number_of_rows(uris):
    for step in served(uris, 60):
        assert [Counter(owners(step))[i] for i in range(3)] == list(ROWS)


def test_an_epoch_of_a_set_holds_each_of_its_rows_once(uris):
    """Epochs of the sets end at different steps, most of them within a batch."""
    steps = served(uris, 106)
    first = 0
    for size, per_batch in zip(SIZES, ROWS, strict=True):
        ids = range(first, first + size)
        rows = [x for step in steps[:size] for x in step if x in ids]  # `per_batch` epochs
        assert Counter(rows) == dict.fromkeys(ids, per_batch)
        first = ids.stop


@pytest.mark.parametrize("world_size", [2, 3, 4, 6, 12])
def test_ranks_together_serve_what_one_rank_would(uris, world_size):
    assert served(uris, 40, world_size=world_size) == served(uris, 40)


def test_micro_batches_cut_a_ranks_part_in_order(uris):
    cut = batches(uris, 10, world_size=2, micro_batches=3)
    assert [[len(x.row_ids) for x in step] for step in cut] == [[2] * 6] * 10
    assert served(uris, 10, world_size=2, micro_batches=3) == served(uris, 10)


@settings(max_examples=8)
@given(step=st.integers(0, 60), before=st.sampled_from([1, 2, 4]), after=st.sampled_from([1, 3, 6]))
def test_a_run_goes_on_at_any_step_with_any_ranks(uris, step, before, after):
    undisturbed = served(uris, step + 5)
    assert served(uris, step, world_size=before) == undisturbed[:step]
    assert served(uris, 5, first_step=step, world_size=after) == undisturbed[step:]


def test_a_set_comes_in_the_order_that_it_has_alone(uris):
    """The first set of a mixture: its order is that of a batch of its rows, with their buffer."""
    alone = served(uris[:1], 40, rows=ROWS[:1], buffer=48 * 7 // 12)
    mixed = [[x for x in step if x < SIZES[0]] for step in served(uris, 40)]
    assert mixed == alone


def test_sets_of_one_seed_are_shuffled_differently(tmp_path):
    twins = [write_data_set(tmp_path / str(i), [[5] * 40] * 4) for i in range(2)]
    for step in served(twins, 20, rows=(8, 8)):
        first, second = ([x % 160 for x in step if x // 160 == i] for i in range(2))
        assert first != second


def test_every_rank_has_its_share_of_each_set(tmp_path):
    twins = [write_data_set(tmp_path / str(i), [[5] * 40] * 4) for i in range(2)]
    for world_size in (2, 4, 8):
        for step in batches(twins, 5, rows=(8, 24), world_size=world_size):
            for batch in step:
                first = int((batch.row_ids < 160).sum())
                assert (first, len(batch.row_ids)) == (8 // world_size, 32 // world_size)


def test_sets_of_similar_rows_serve_similar_lengths_together(tmp_path):
    rng = np.random.default_rng(0)
    pair = [
        write_data_set(tmp_path / str(i), rng.integers(1, 200, (8, 256)).tolist()) for i in range(2)
    ]
    padded = tokens = 0
    for step in batches(pair, 64, rows=(32, 32), buffer=2048, world_size=2):
        for batch in step:
            padded += batch.is_token.numel()
            tokens += int(batch.is_token.sum())
    assert padded / tokens < 1.2  # rows at random would pad by about 2


def test_rows_arrive_as_they_were_written_whatever_their_horizon(uris):
    """Ends above 255 are stored in a wider type than those of the other sets."""
    written = []
    for uri in uris:
        table = manifest.open_manifest(uri).sort("shard").collect()
        written += [row for path in table["path"] for row in read_rows(f"{uri}/{path}")]
    latest = 0
    for step in batches(uris, 20):
        for batch in step:
            for i, row_id in enumerate(batch.row_ids.tolist()):
                row, kept = written[row_id], slice(0, int(batch.is_token[i].sum()))
                segments = batch.segments[i : i + 1]
                path = segments.states(row.horizon)[:, 0, kept].long()
                assert torch.equal(path, torch.from_numpy(states(row).astype(np.int64)))
                assert int(segments.step) == row.step
                latest = max(latest, int(segments.ends.max()))
    assert latest > 255


def test_a_rank_reads_only_its_lanes(tmp_path):
    pair = [write_data_set(tmp_path / str(i), [[4] * 32] * 64) for i in range(2)]
    read = []
    for rank in (0, 1):
        mixed = mixture(pair, (8, 8), buffer=256)
        list(islice(Loader(mixed, rank=rank, world_size=2).batches(), 256))
        read.append([set(x._verified) for x in mixed.sets])
    for first, second in zip(*read, strict=True):
        assert len(first) == len(second) == 32
        assert not first & second


def test_rows_are_named_with_their_set(uris):
    assert mixture(uris).reopened().names(np.array([0, 106, 147])) == [
        f"{uris[0]} train-00000-00:0 (example-0-0)",
        f"{uris[1]} train-00000-00:0 (example-0-0)",
        f"{uris[2]} train-00000-00:1 (example-0-1)",
    ]
