"""95 % intervals: Wilson's for shares, the bootstrap for means and for shares within groups."""

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z = 1.959963984540054  # the normal's 97.5 % point
RESAMPLES = 1000


def wilson(successes: float, count: int) -> tuple[float, float]:
    """Wilson's interval of a share; [0, 1] if the count is 0."""
    if count == 0:
        return 0.0, 1.0
    share = successes / count
    centre = share + Z**2 / (2 * count)
    spread = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    low, high = ((centre + sign * spread) / (1 + Z**2 / count) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def bootstrap(
    groups: NDArray[np.floating], statistic: Callable[[NDArray[np.floating]], NDArray[np.floating]]
) -> tuple[float, float]:
    """Bootstrap interval of a statistic of sums over groups, resampling the groups.

    Cells of one board are not independent, so counts of cells are resampled by board. The draws
    are the same every time.

    Args:
        groups: The summands of each group, [B, K].
        statistic: Maps sums [R, K] to values [R]; values that are not finite are ignored.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(_draws(len(groups)) @ groups)
    low, high = np.quantile(values[np.isfinite(values)], [0.025, 0.975])
    return float(low), float(high)


def bootstrap_ratio(parts: ArrayLike, wholes: ArrayLike) -> tuple[float, float]:
    """Interval of Σ parts / Σ wholes over groups, [B] each; of a mean if all wholes are 1."""
    sums = np.stack([np.asarray(parts, np.float64), np.asarray(wholes, np.float64)], 1)
    if sums[:, 1].sum() == 0:
        return 0.0, 1.0
    return bootstrap(sums, lambda total: total[:, 0] / total[:, 1])


@functools.lru_cache(maxsize=2)
def _draws(count: int) -> NDArray[np.floating]:
    """Number of times that each of `count` groups is drawn in each resample, [R, B]."""
    rng = np.random.default_rng(0)
    return rng.multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(np.float64)
