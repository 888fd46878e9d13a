"""Small data sets with rows of any lengths, written as the build writes them."""

import hashlib

import numpy as np

from remask.pipeline import TrajectoryConfig, Uniform, sample_trajectories
from remask.pipeline.format import manifest
from remask.pipeline.format.parquet import SCHEMA_VERSION
from remask.pipeline.format.rows import Examples, TrajectoryRows, Vocabulary, encode_trajectories
from remask.pipeline.runtime.storage import Storage

VOCABULARY = Vocabulary(size=20, mask_id=19)
LAW = TrajectoryConfig(horizon=4, noisy_rate=(0.2, 0.9), doubt_share=0.2)


def write_data_set(uri, shards, *, splits=None, seed=0):
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
        drawn = sample_trajectories(target, editable, Uniform(VOCABULARY.allowed), LAW, rng)
        data = encode_trajectories(TrajectoryRows(examples, drawn, LAW.horizon))
        path = f"{manifest.SHARDS}/{name}.parquet"
        storage.write(path, data)
        row = manifest.EMPTY_ROW | {
            "shard": name,
            "path": path,
            "split": name.rsplit("-", 2)[0],
            "schema_version": SCHEMA_VERSION,
            "horizon": LAW.horizon,
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
