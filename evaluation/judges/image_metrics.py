"""How an edited picture compares with its source, its target and the region that should change.

A pixel is changed if one of its channels differs from the source by more than a threshold. The
*region* is what should change: the mask that came with the pair or, without one, the pixels in
which source and target differ by more than the threshold. The *asked* pixels are those of the
region that differ in the target. The *zone* is the region or, since an edit changes whole cells of
the tokeniser, the region rounded out to whole cells.

    precision    share of the changed pixels that lie in the zone
    coverage     share of the region's pixels that are changed
    outside      mean absolute error, PSNR and SSIM to the source over all pixels outside the zone
    agreement    share of the asked pixels that are within the threshold of the target; it does not
                 reward leaving a generous mask unchanged

PSNR is cut off at 60 dB, near the 58.9 dB that rounding to 8 bits leaves, so that a background
without any change has a finite value. For SSIM the zone is filled with the source's own pixels, so
that windows on its border are not affected by the edit.
"""

import math
from dataclasses import dataclass

import numpy as np

from remask.pipeline.edits.images import Picture, Region

MAX_PSNR = 60.0
SSIM_WINDOW = 7


@dataclass(frozen=True)
class EditMeasures:
    """Counts of pixels, and figures that are NaN if there is nothing to measure."""

    changed: int
    changed_in_zone: int
    region: int
    changed_in_region: int
    outside_mae: float
    """In levels from 0 to 255."""
    outside_psnr: float
    outside_ssim: float
    agreement: float


def changed_pixels(edit: Picture, source: Picture, threshold: float) -> Region:
    """Whether a channel of each pixel differs by more than this share of its range."""
    return np.abs(edit.astype(np.int16) - source).max(-1) > threshold * 255


def round_out(region: Region, patch: int) -> Region:
    """All cells that overlap the region, as pixels."""
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
    """Compare an edit with its source and its target. All pictures have the same size.

    Args:
        edit: The edited picture.
        source: The picture before the edit.
        target: The picture that the edit should be.
        region: Where the edit belongs.
        asked: Pixels of the region that differ in the target.
        patch: Pixels per side of the zone's cells; 1 for the region itself.
        threshold: Share of a channel's range by which a pixel must differ to count as changed.
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
        return MAX_PSNR
    psnr = peak_signal_noise_ratio(source[where], edit[where], data_range=255)
    return min(float(psnr), MAX_PSNR)


def _ssim(edit: Picture, source: Picture, where: Region) -> float:
    from skimage.metrics import structural_similarity

    if not where.any() or min(source.shape[:2]) < SSIM_WINDOW:
        return math.nan
    filled = np.where(where[..., None], edit, source)
    by_pixel = structural_similarity(
        source, filled, win_size=SSIM_WINDOW, channel_axis=-1, data_range=255, full=True
    )[1]
    return float(np.asarray(by_pixel)[where].mean())  # over pixels and channels


def check_installed() -> None:
    """Raise ValueError if scikit-image is not installed."""
    try:
        import skimage.metrics  # noqa: F401
    except ImportError as error:
        raise ValueError("image suites need scikit-image: pip install 'remask[image]'") from error
