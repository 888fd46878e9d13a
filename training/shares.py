"""The shard sets that a recipe names, and the rows that a batch takes from each."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from remask.models.ranges import Range, check_fields

TOLERANCE = 1e-6
"""How far the sum of all shares may be from 1."""


@dataclass(frozen=True, kw_only=True)
class ShardShare:
    """A shard set, and its share of every batch; `check_shares` checks all sets of a recipe."""

    uri: str
    """A data set that `remask build` wrote: any fsspec URI."""
    share: Annotated[float, Range("(0, 1]")]
    """Share of the rows of every batch."""


def check_shares(sets: Sequence[ShardShare], batch_size: int) -> None:
    """Raise ValueError unless every set has rows in a batch and the shares sum to 1."""
    if not sets:
        raise ValueError("shards is an empty list; name at least one data set")
    for i, shard_share in enumerate(sets):
        check_fields(shard_share, f"shards.{i}.")
    total = math.fsum(x.share for x in sets)
    if abs(total - 1) > TOLERANCE:
        raise ValueError(
            f"shards: the shares {', '.join(f'{x.share:g}' for x in sets)} must sum to 1, got "
            f"{total:.7g}"
        )
    uri, count = Counter(x.uri.rstrip("/") for x in sets).most_common(1)[0]
    if count > 1:
        raise ValueError(f"shards names {uri} {count} times; name it once, with the sum of shares")
    for shard_share, rows in zip(sets, rows_per_set(sets, batch_size), strict=True):
        if rows == 0:
            needed = math.ceil(1 / min(x.share for x in sets))
            raise ValueError(
                f"shards: {shard_share.uri} has a share of {shard_share.share:g}, which is no row "
                f"of a batch of {batch_size}; raise the share, or batch_size to {needed} or more"
            )


def rows_per_set(sets: Sequence[ShardShare], batch_size: int) -> list[int]:
    """Rows of every batch that come from each set; they sum to `batch_size`.

    Shares of the batch are rounded down, and the rows that are left go to the sets with the largest
    remainders, to the first of them on a tie.
    """
    total = math.fsum(x.share for x in sets)
    exact = [x.share / total * batch_size for x in sets]
    rows = [math.floor(x) for x in exact]
    by_remainder = sorted(range(len(sets)), key=lambda i: rows[i] - exact[i])
    for i in by_remainder[: batch_size - sum(rows)]:
        rows[i] += 1
    return rows
