"""Row operations, compiled and in NumPy, against enumeration and plain loops."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remask.kernels import rows
from remask.kernels.build import Native, native
from remask.kernels.rows import choose_subsets, pack_halves, uniforms, unpack_halves

ways = st.sampled_from(["compiled", "numpy"])


def in_way(way, function, *arguments):
    """The result of the compiled function, or of its NumPy form; skips without a compiler."""
    if way == "compiled" and native("rows").library is None:
        assert "no C++ compiler found" in native("rows").detail
        pytest.skip(native("rows").detail)
    with pytest.MonkeyPatch.context() as patch:
        if way == "numpy":
            patch.setattr(rows, "native", lambda name: Native(None, "as the test wants it"))
        return function(*arguments)


def splitmix64_by_a_loop(key, count):
    """The published generator on Python's integers, as 64-bit numbers."""
    numbers, all_bits = [], 2**64 - 1
    for _ in range(count):
        key = (key + 0x9E3779B97F4A7C15) & all_bits
        z = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 & all_bits
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & all_bits
        numbers.append(z ^ (z >> 31))
    return numbers


def test_the_loop_gives_the_generators_published_numbers():
    assert splitmix64_by_a_loop(1234567, 3) == [
        6457827717110365317, 3203168211198807973, 9817491932198370423
    ]  # fmt: skip


@given(ways, st.integers(0, 2**64 - 1), st.integers(0, 50))
def test_uniforms_are_the_generators_upper_bits(way, key, count):
    draws = in_way(way, uniforms, key, count)
    assert draws.tolist() == [x // 2**11 / 2**53 for x in splitmix64_by_a_loop(key, count)]


def subsets_by_a_loop(counts, sizes, draws):
    """Floyd's algorithm as its author wrote it, one set at a time."""
    draws, first, items = iter(draws), 0, []
    for count, size in zip(counts, sizes, strict=True):
        chosen = set()
        for last in range(count - size, count):
            drawn = int(next(draws) * (last + 1))
            chosen.add(last if drawn in chosen else drawn)
        items += [first + item for item in sorted(chosen)]
        first += count
    return items


@given(ways, st.data(), st.lists(st.integers(0, 200), max_size=12), st.integers(0, 2**32))
def test_subsets_are_those_of_a_plain_loop(way, data, counts, seed):
    sizes = [data.draw(st.integers(0, count)) for count in counts]
    draws = np.random.default_rng(seed).random(sum(sizes))
    arrays = np.array(counts, np.int64), np.array(sizes, np.int64)
    chosen = in_way(way, choose_subsets, *arrays, draws)
    assert chosen.tolist() == subsets_by_a_loop(counts, sizes, draws.tolist())
    owner = np.repeat(np.arange(len(counts)), counts)
    assert np.bincount(owner[chosen], minlength=len(counts)).tolist() == sizes


@pytest.mark.parametrize("way", ["compiled", "numpy"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_all_subsets_of_a_size_are_equally_likely(way, size):
    """Enumerates the subsets of sets of 5 items, which lie among sets of another count and size."""
    num_sets = 24_000
    count = np.tile([3, 5], num_sets)
    sizes = np.tile([2, size], num_sets)
    draws = np.random.default_rng(size).random(sizes.sum())
    chosen = in_way(way, choose_subsets, count, sizes, draws)
    member = np.zeros(8 * num_sets, np.bool_)
    member[chosen] = True
    member = member.reshape(num_sets, 8)[:, 3:]
    codes = np.bincount(member @ (1 << np.arange(5)), minlength=32)
    subsets = [sum(1 << i for i in subset) for subset in combinations(range(5), size)]
    assert codes[subsets].sum() == num_sets
    share = 1 / len(subsets)
    deviation = 5 * (share * (1 - share) / num_sets) ** 0.5
    assert np.abs(codes[subsets] / num_sets - share).max() <= deviation
    assert np.abs(member.mean(0) - size / 5).max() <= 5 * (0.25 / num_sets) ** 0.5


@pytest.mark.parametrize("way", ["compiled", "numpy"])
def test_the_largest_draw_stays_within_the_set(way):
    count = np.array([1, 63, 64, 65, 4096])
    chosen = in_way(way, choose_subsets, count, np.ones_like(count), np.full(5, 1 - 2.0**-53))
    assert chosen.tolist() == (np.cumsum(count) - 1).tolist()


@pytest.mark.parametrize(("size", "numbers"), [([3, 0], 3), ([-1, 1], 0), ([1, 1], 1)])
def test_sizes_that_do_not_fit_are_refused(size, numbers):
    with pytest.raises(ValueError, match="sizes must lie between 0 and the counts"):
        choose_subsets(np.array([2, 2]), np.array(size), np.zeros(numbers))


@given(ways, st.lists(st.lists(st.integers(0, 14), max_size=9), max_size=9))
def test_halves_are_those_of_a_plain_loop(way, lists):
    count = np.array([len(x) for x in lists], np.int64)
    values = np.array([value for x in lists for value in x], np.uint8)
    packed = in_way(way, pack_halves, values, count)
    padded = [x + [15] * (len(x) % 2) for x in lists]
    expected = [low + 16 * high for x in padded for low, high in zip(x[::2], x[1::2], strict=True)]
    assert packed.tolist() == expected
    unpacked, unpacked_count = in_way(way, unpack_halves, packed, (count + 1) // 2)
    assert unpacked.tolist() == values.tolist()
    assert unpacked_count.tolist() == count.tolist()
