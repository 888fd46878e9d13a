"""Metrics of image edits, on pictures made so that each has a known value."""

import math

import numpy as np
import pytest

from remask.evaluation.judges.image_metrics import MAX_PSNR, changed_pixels, measure, round_out

PATCH = 4


def picture(level=100, side=16):
    return np.full((side, side, 3), level, np.uint8)


def block(rows, columns, side=16):
    region = np.zeros((side, side), bool)
    region[rows, columns] = True
    return region


def painted(base, region, level):
    out = base.copy()
    out[region] = level
    return out


REGION = block(slice(4, 8), slice(8, 12))  # one cell of sixteen
SOURCE = picture()
TARGET = painted(SOURCE, REGION, 200)


def measured(edit, region=REGION, source=SOURCE, target=TARGET):
    asked = region & changed_pixels(target, source, 0.1)
    return measure(edit, source, target, region, asked, patch=PATCH, threshold=0.1)


def test_the_right_edit_has_the_best_of_everything():
    out = measured(TARGET)
    assert (out.changed, out.changed_in_zone, out.region, out.changed_in_region) == (16,) * 4
    assert out.outside_mae == 0
    assert out.outside_psnr == MAX_PSNR
    assert out.outside_ssim == pytest.approx(1)
    assert out.agreement == 1


def test_no_edit_changes_nothing_and_agrees_with_nothing():
    out = measured(SOURCE)
    assert (out.changed, out.changed_in_zone, out.changed_in_region) == (0, 0, 0)
    assert out.agreement == 0
    assert out.outside_psnr == MAX_PSNR


def test_leaving_a_generous_mask_unchanged_does_not_succeed():
    wide = block(slice(0, 16), slice(0, 12))
    assert measured(SOURCE, wide).agreement == 0
    assert measured(TARGET, wide).agreement == 1
    assert measured(TARGET, wide).region == 192
    assert math.isnan(measured(SOURCE, block(slice(12, 16), slice(0, 4))).agreement), (
        "nothing asked"
    )


def test_a_full_repaint_covers_all_and_keeps_nothing():
    out = measured(picture(200))
    assert (out.changed, out.changed_in_zone) == (256, 16)
    assert out.changed_in_region == out.region == 16
    assert out.agreement == 1
    assert out.outside_mae == 100
    assert out.outside_psnr == pytest.approx(20 * math.log10(255 / 100))
    assert out.outside_ssim < 0.9
    plain = measured(picture(200), region=np.zeros_like(REGION))
    constant = (2 * 100 * 200 + (0.01 * 255) ** 2) / (100**2 + 200**2 + (0.01 * 255) ** 2)
    assert plain.outside_ssim == pytest.approx(constant)  # no structure: luminance alone


def test_an_edit_one_cell_off_has_no_precision():
    out = measured(painted(SOURCE, block(slice(4, 8), slice(4, 8)), 200))
    assert (out.changed, out.changed_in_zone, out.changed_in_region) == (16, 0, 0)
    assert out.agreement == 0
    assert out.outside_mae == pytest.approx(100 * 16 / 240)
    mse = 100**2 * 16 / 240
    assert out.outside_psnr == pytest.approx(10 * math.log10(255**2 / mse))
    assert out.outside_ssim < 1


def test_half_an_edit_covers_half():
    out = measured(painted(SOURCE, block(slice(4, 6), slice(8, 12)), 200))
    assert (out.changed, out.changed_in_zone, out.changed_in_region) == (8, 8, 8)
    assert out.agreement == 0.5


def test_a_region_within_a_cell_is_rounded_out_for_precision_but_not_for_coverage():
    small = block(slice(5, 7), slice(9, 11))
    out = measured(TARGET, region=small)
    assert (out.changed, out.changed_in_zone) == (16, 16)
    assert (out.region, out.changed_in_region) == (4, 4)
    assert out.outside_mae == 0


def test_an_edit_is_not_seen_across_the_border_of_its_zone():
    wild = painted(SOURCE, REGION, 255)
    assert measured(wild).outside_ssim == pytest.approx(1)


def test_nothing_to_change_and_nothing_to_keep():
    nothing = measured(SOURCE, region=np.zeros_like(REGION))
    assert nothing.region == 0
    assert math.isnan(nothing.agreement)
    everything = measured(TARGET, region=np.ones_like(REGION))
    assert math.isnan(everything.outside_mae)
    assert math.isnan(everything.outside_psnr)
    assert math.isnan(everything.outside_ssim)


def test_a_pixel_changes_beyond_the_threshold_in_any_channel():
    edit = picture()
    edit[0, 0, 1] += 26  # more than 0.1 · 255
    edit[0, 1] += 25
    assert np.argwhere(changed_pixels(edit, SOURCE, 0.1)).tolist() == [[0, 0]]
    edit[0, 2, 2] -= 26
    assert changed_pixels(edit, SOURCE, 0.1).sum() == 2


def test_rounding_out_takes_whole_cells():
    rng = np.random.default_rng(0)
    region = rng.random((12, 20)) < 0.02
    zone = round_out(region, 4)
    for row in range(0, 12, 4):
        for column in range(0, 20, 4):
            cell = slice(row, row + 4), slice(column, column + 4)
            assert zone[cell].all() == zone[cell].any() == region[cell].any()
