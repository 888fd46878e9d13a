"""Batches from shards: every row once an epoch, whoever asks and however often it is killed."""

import hashlib
import threading
from collections import Counter
from itertools import islice

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remask.pipeline import read_rows, states
from remask.pipeline.format import manifest
from remask.pipeline.format.examples import pad
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.training.loader import Loader
from remask.training.mixture import Mixture
from remask.training.prefetch import Prefetched
from remask.training.shard_set import ShardSet
from tests.training.data import LAW, write_data_set


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Seven shards of 0 to 60 rows, 1 to 30 tokens long."""
    rng = np.random.default_rng(3)
    shards = [rng.integers(1, 30, n).tolist() for n in (40, 1, 17, 60, 0, 33, 26)]
    return write_data_set(tmp_path_factory.mktemp("mixed"), shards)


def loaders(uri, *, batch_size=12, seed=0, buffer=48, world_size=1, micro_batches=1):
    return [
        Loader(
            Mixture.single(ShardSet(uri, "train"), batch_size, seed, buffer),
            rank=rank,
            world_size=world_size,
            micro_batches=micro_batches,
        )
        for rank in range(world_size)
    ]


def served(uri, steps, first_step=0, **kwargs):
    """Row ids of each step, over all ranks in order."""
    streams = [islice(x.batches(first_step), steps) for x in loaders(uri, **kwargs)]
    return [
        [i for batches in ranks for batch in batches for i in batch.row_ids.tolist()]
        for ranks in zip(*streams, strict=True)
    ]


def test_rows_come_in_the_order_that_they_always_came_in(mixed):
    """Runs that are under way must see the rows that they would have seen."""
    ids = repr(served(mixed, 59)).encode()
    assert hashlib.sha256(ids).hexdigest()[:16] == "1f5323ee86bdae9b"


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 12])
def test_ranks_together_serve_what_one_rank_would(mixed, world_size):
    assert served(mixed, 40, world_size=world_size) == served(mixed, 40)


def test_micro_batches_cut_a_ranks_part_in_order(mixed):
    whole = served(mixed, 10, world_size=2)
    assert served(mixed, 10, world_size=2, micro_batches=3) == whole
    (first,) = islice(loaders(mixed, micro_batches=3)[0].batches(), 1)
    assert [len(batch.row_ids) for batch in first] == [4, 4, 4]


def test_an_epoch_holds_every_row_once(mixed):
    # 177 rows are no multiple of 12: lanes continue into the next epoch within a batch.
    rows = [i for step in served(mixed, 59) for i in step]  # 708 = 4 · 177
    assert len(rows) == 4 * 177
    assert set(Counter(rows).values()) == {4}


@settings(max_examples=8)
@given(step=st.integers(0, 60), before=st.sampled_from([1, 2, 4]), after=st.sampled_from([1, 3, 6]))
def test_a_run_goes_on_at_any_step_with_any_ranks(mixed, step, before, after):
    undisturbed = served(mixed, step + 5)
    assert served(mixed, step, world_size=before) == undisturbed[:step]
    assert served(mixed, 5, first_step=step, world_size=after) == undisturbed[step:]


def test_the_order_follows_from_seed_and_epoch(mixed):
    assert served(mixed, 20) == served(mixed, 20)
    assert served(mixed, 20) != served(mixed, 20, seed=1)
    epochs = np.array(served(mixed, 59)).reshape(4, 177)
    assert not np.array_equal(epochs[0], epochs[1])
    assert sorted(epochs[0]) != epochs[0].tolist()


def test_rows_arrive_as_they_were_written(mixed):
    table = manifest.open_manifest(mixed).sort("shard").collect()
    written = [row for path in table["path"] for row in read_rows(f"{mixed}/{path}")]
    (loader,) = loaders(mixed)
    sizes = set()
    for batches in islice(loader.batches(), 20):
        for batch in batches:
            rows = [written[i] for i in batch.row_ids.tolist()]
            segments = batch.segments
            grids = {"editable": (batch.editable, [row.editable for row in rows])}
            for k in range(LAW.horizon + 1):  # shards of three and of five segments are mixed
                grids[f"state {k}"] = (segments.state_at(k), [states(row)[k] for row in rows])
            for name, (grid, arrays) in grids.items():
                expected, lengths = pad(arrays, np.dtype(np.int64))
                assert torch.equal(grid.long(), torch.from_numpy(expected)), name
            assert batch.is_token.sum(1).tolist() == lengths.tolist()
            assert segments.step.tolist() == [row.step for row in rows]
            sizes |= {segments.num_segments, *(len(row.tokens) for row in rows)}
            assert batch.target.dtype == torch.int32
    assert sizes == {3, 5}


def test_rows_of_like_length_come_together_on_every_rank(tmp_path):
    lengths = np.random.default_rng(0).integers(1, 200, 4096).reshape(8, 512).tolist()
    uri = write_data_set(tmp_path, lengths)
    ranks = loaders(uri, batch_size=64, buffer=2048, world_size=2)
    padded = tokens = 0
    widths = []
    for steps in islice(zip(*(x.batches() for x in ranks), strict=True), 64):
        for (batch,) in steps:
            padded += batch.is_token.numel()
            tokens += int(batch.is_token.sum())
        widths.append([batch.is_token.shape[1] for (batch,) in steps])
    assert padded / tokens < 1.15  # rows at random would pad by about 2
    assert np.abs(np.diff(widths)).mean() < 15


def test_a_rank_reads_only_its_lanes(tmp_path):
    uri = write_data_set(tmp_path, [[4] * 32] * 64)
    read = []
    for rank in (0, 1):
        shards = ShardSet(uri, "train")
        loader = Loader(Mixture.single(shards, 16, 0, 256), rank=rank, world_size=2)
        list(islice(loader.batches(), 128))  # one epoch
        read.append(set(shards._verified))
    assert len(read[0]) == len(read[1]) == 32
    assert not read[0] & read[1]


def test_prefetching_gives_the_same_and_ends_its_thread(mixed):
    (loader,) = loaders(mixed)
    expected = [x[0].row_ids.tolist() for x in islice(loader.batches(3), 10)]
    with Prefetched(loaders(mixed)[0], 3) as stream:
        assert [next(stream)[0].row_ids.tolist() for _ in range(10)] == expected
    assert not [x for x in threading.enumerate() if x.name == "loader"]


def test_an_altered_shard_is_named_when_it_is_read(mixed, tmp_path):
    uri = write_data_set(tmp_path, [[5] * 10, [5] * 10])
    (first, *_) = sorted((tmp_path / "shards").iterdir())
    first.write_bytes(first.read_bytes()[:-20] + bytes(20))
    with (
        pytest.raises(StorageError, match=r"train-00000-00.parquet does not match its checksum"),
        Prefetched(loaders(uri, batch_size=4)[0]) as stream,
    ):
        next(stream)


def test_rows_are_named_by_shard_row_and_example(mixed):
    assert ShardSet(mixed, "train").names(np.array([0, 41, 176])) == [
        "train-00000-00:0 (example-0-0)",
        "train-00002-00:0 (example-2-0)",
        "train-00006-00:25 (example-6-25)",
    ]


def test_what_does_not_fit_is_refused(mixed, tmp_path):
    with pytest.raises(ValueError, match="has no rows of split 'held_out'"):
        ShardSet(mixed, "held_out")
    with pytest.raises(StorageError, match="there is no data set at"):
        ShardSet(str(tmp_path / "none"), "train")
    with pytest.raises(ValueError, match=r"batch_size 12 must be a multiple .* \(5 × 1\)"):
        loaders(mixed, world_size=5)
    few = write_data_set(tmp_path / "few", [[3, 4]])
    with pytest.raises(ValueError, match="has 2 rows for 4 ranks"):
        loaders(few, world_size=4)


def test_a_manifest_that_does_not_fit_is_refused(tmp_path):
    uri = write_data_set(tmp_path, [[3, 4], [5]])
    storage = Storage(uri)
    table = manifest.open_manifest(uri).collect()

    def rewrite(changed):
        changed.write_parquet(tmp_path / manifest.MANIFEST)

    rewrite(table.drop("horizon", "sha256"))
    with pytest.raises(
        StorageError, match=r"damaged: it lacks the columns \['horizon', 'sha256'\]"
    ):
        ShardSet(uri, "train")
    rewrite(table.with_columns(schema_version=pl.lit(9, pl.Int32)))
    with pytest.raises(ValueError, match="schema version 9"):
        ShardSet(uri, "train")
    rewrite(table.head(1))
    with pytest.raises(ValueError, match="has 1 of its 2 shards; finish it"):
        ShardSet(uri, "train")
    rewrite(table.with_columns(horizon=pl.Series([4, 6], dtype=pl.Int32)))
    with pytest.raises(ValueError, match=r"differ in horizon: \[4, 6\]"):
        ShardSet(uri, "train").shared_value("horizon")
    assert storage.exists(manifest.MANIFEST)
