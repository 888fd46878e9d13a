"""Small data sets with rows of any lengths, written as the build writes them."""

import hashlib
from dataclasses import replace

import numpy as np

from remask.pipeline import TrajectoryConfig, Uniform
from remask.pipeline.format import manifest
from remask.pipeline.format.examples import Examples, Vocabulary
from remask.pipeline.format.parquet import SCHEMA_VERSION
from remask.pipeline.format.rows import TrajectoryRows, encode_trajectories
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.trajectory import sample_moves

VOCABULARY = Vocabulary(size=20, mask_id=19)
LAW = TrajectoryConfig(horizon=4, noisy_rate=(0.2, 0.9), doubt_share=0.2)
RELAPSES = replace(LAW, rules={"wrong": 0.4, "mask": 0.2, "relapse": 0.2, "relapse2": 0.2})
"""Every third shard follows this law: its paths have up to five segments."""


def write_data_set(uri, shards, *, splits=None, seed=0, horizon=LAW.horizon):
    """A data set whose shards have rows of the given lengths: [[5, 3], [7], ...]."""
    rng = np.random.default_rng(seed)
    storage = Storage(str(uri))
    for index, lengths in enumerate(shards):
        lengths = np.array(lengths, np.int64)
        width = int(lengths.max(initial=0))
        is_token = np.arange(width) < lengths[:, None]
        target = (rng.integers(0, 19, (len(lengths), width)) * is_token).astype(np.uint8)
        editable = is_token & (np.arange(width) > 0)
        name = f"{(splits or {}).get(index, 'train')}-{index:05d}-00"
        examples = Examples(
            example_ids=[f"example-{index}-{i}" for i in range(len(lengths))],
            target=target,
            editable=editable,
            lengths=lengths,
            prompt_lengths=np.ones(len(lengths), np.int32),
            vocabulary=VOCABULARY,
        )
        proposal, mask_id = Uniform(VOCABULARY.allowed), VOCABULARY.mask_id
        law = replace(RELAPSES if index % 3 == 2 else LAW, horizon=horizon)
        moves = sample_moves(target, editable, proposal, law, rng, mask_id=mask_id)
        data = encode_trajectories(TrajectoryRows(examples, moves, horizon))
        path = f"{manifest.SHARDS}/{name}.parquet"
        storage.write(path, data)
        row = manifest.EMPTY_ROW | {
            "shard": name,
            "path": path,
            "split": name.rsplit("-", 2)[0],
            "schema_version": SCHEMA_VERSION,
            "horizon": horizon,
            "vocab_size": VOCABULARY.size,
            "mask_id": VOCABULARY.mask_id,
            "rows": len(lengths),
            "tokens": int(lengths.sum()),
            "longest": width,
            "editable": int(editable.sum()),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "num_shards": len(shards),
        }
        manifest.commit(storage, row)
    manifest.close(storage, "")
    return str(uri)
