"""How an edited picture compares with its source, its target and the region it should change.

A pixel is changed where a channel is further from the source than a threshold. The *region* is what
should change: the mask that came with the pair or, without one, where source and target differ by
more than the threshold. The *zone* is the region or, since an edit moves whole cells of the
tokeniser, the region rounded out to whole cells.

    precision    of the changed pixels, those in the zone
    coverage     of the region's pixels, those changed
    outside      mean absolute error, PSNR and SSIM to the source on all pixels not in the zone
    agreement    of the pixels asked for, the region's that are others in the target, those within
                 the threshold of the target; doing nothing in a generous mask is no success

PSNR is cut off at 60 dB, which is what rounding to 8 bits leaves (58.9), so that a background kept
to the last bit has a number. For SSIM the zone of the edit is filled with the source's own pixels,
so that windows on its border see nothing of the edit.
"""

import math
from dataclasses import dataclass

import numpy as np

from remask.pipeline.edits.images import Picture, Region

MOST_PSNR = 60.0
SSIM_WINDOW = 7


@dataclass(frozen=True)
class EditMeasures:
    """Counts in pixels, and figures that are NaN where there is nothing to measure."""

    changed: int
    changed_in_zone: int
    region: int
    changed_in_region: int
    outside_mae: float
    """In levels of 0 .. 255."""
    outside_psnr: float
    outside_ssim: float
    agreement: float


def changed_pixels(edit: Picture, source: Picture, threshold: float) -> Region:
    """Where a channel is off by more than a share of its range."""
    return np.abs(edit.astype(np.int16) - source).max(-1) > threshold * 255


def round_out(region: Region, patch: int) -> Region:
    """The region made of whole cells: those that hold any of it."""
    height, width = region.shape
    cells = region.reshape(height // patch, patch, width // patch, patch).any((1, 3))
    return cells.repeat(patch, 0).repeat(patch, 1)


def measure(
    edit: Picture,
    source: Picture,
    target: Picture,
    region: Region,
    asked: Region,
    *,
    patch: int,
    threshold: float,
) -> EditMeasures:
    """Compare an edit with what it came from and what it should be.

    Args:
        edit: What was made.
        source: What it was made of; all pictures are of one size.
        target: What should have been made.
        region: Where the edit belongs.
        asked: Pixels of it that are others in the target.
        patch: Pixels per side of the zone's cells; 1 for the region itself.
        threshold: Share of a channel's range beyond which a pixel is changed.
    """
    changed, zone = changed_pixels(edit, source, threshold), round_out(region, patch)
    agrees = ~changed_pixels(edit, target, threshold)
    return EditMeasures(
        changed=int(changed.sum()),
        changed_in_zone=int((changed & zone).sum()),
        region=int(region.sum()),
        changed_in_region=int((changed & region).sum()),
        outside_mae=_mae(edit, source, ~zone),
        outside_psnr=_psnr(edit, source, ~zone),
        outside_ssim=_ssim(edit, source, ~zone),
        agreement=float(agrees[asked].mean()) if asked.any() else math.nan,
    )


def _mae(edit: Picture, source: Picture, where: Region) -> float:
    if not where.any():
        return math.nan
    return float(np.abs(edit.astype(np.int16) - source)[where].mean())


def _psnr(edit: Picture, source: Picture, where: Region) -> float:
    from skimage.metrics import peak_signal_noise_ratio

    if not where.any():
        return math.nan
    if np.array_equal(edit[where], source[where]):
        return MOST_PSNR
    found = peak_signal_noise_ratio(source[where], edit[where], data_range=255)
    return min(float(found), MOST_PSNR)


def _ssim(edit: Picture, source: Picture, where: Region) -> float:
    from skimage.metrics import structural_similarity

    if not where.any() or min(source.shape[:2]) < SSIM_WINDOW:
        return math.nan
    filled = np.where(where[..., None], edit, source)
    found = structural_similarity(
        source, filled, win_size=SSIM_WINDOW, channel_axis=-1, data_range=255, full=True
    )
    return float(np.asarray(found[1])[where].mean())  # by pixel and channel


def check_installed() -> None:
    """Raise ValueError where what measures pictures is missing."""
    try:
        import skimage.metrics  # noqa: F401
    except ImportError as error:
        raise ValueError("image suites need scikit-image: pip install 'remask[image]'") from error
