"""Symmetric images of Sudoku boards, and what they share."""

import numpy as np

from remask.pipeline.sources.sudoku_rules import is_valid, random_boards
from remask.pipeline.sources.sudoku_symmetry import Symmetries, orbit_invariant, random_images


def images_by_hand(board, rng):
    """A symmetric image by one random operation after another, each written out."""
    grid = board.reshape(9, 9).copy()
    digits = rng.permutation(9) + 1
    grid = digits[grid - 1]
    for axis in (0, 1):
        bands = rng.permutation(3)
        lines = [3 * band + i for band in bands for i in rng.permutation(3)]
        grid = np.take(grid, lines, axis)
    return (grid.T if rng.random() < 0.5 else np.rot90(grid)).ravel()


def test_images_are_solved_and_share_the_invariant():
    rng = np.random.default_rng(0)
    boards = random_boards(12, 9, rng)
    images = random_images(boards, rng)
    by_hand = np.stack([images_by_hand(board, rng) for board in boards])
    assert is_valid(images).all()
    assert is_valid(by_hand).all()
    assert (images != boards).any(1).all()
    assert np.array_equal(orbit_invariant(images), orbit_invariant(boards))
    assert np.array_equal(orbit_invariant(by_hand), orbit_invariant(boards))


def test_values_of_cells_move_with_their_digits():
    rng = np.random.default_rng(0)
    boards = random_boards(12, 9, rng)
    symmetries = Symmetries.draw(12, 9, rng)
    images, is_odd = symmetries.images(boards), symmetries.moved(boards % 2 == 1)
    old = symmetries.moved(boards)
    assert np.array_equal(is_odd, old % 2 == 1)
    for before, after, names in zip(old, images, symmetries.names, strict=True):
        assert dict(zip(before.tolist(), after.tolist(), strict=True)) == dict(
            enumerate(names.tolist(), 1)
        )


def test_the_invariant_tells_most_boards_apart():
    boards = random_boards(60, 9, np.random.default_rng(1))
    assert len(np.unique(orbit_invariant(boards), axis=0)) >= 58
