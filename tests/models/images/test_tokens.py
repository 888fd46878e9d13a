import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remask.models.images.tokens import ImageLayout

SMALL = ImageLayout(code_offset=10, num_codes=5, newline_id=3, begin_id=1, end_id=2)


@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 1 << 20))
def test_grids_of_any_shape_come_back_from_their_ids(height, width, seed):
    codes = torch.randint(0, 5, (2, height, width), generator=torch.Generator().manual_seed(seed))
    ids = SMALL.to_tokens(codes)
    assert ids.shape == (2, height * (width + 1))
    assert torch.equal(SMALL.to_codes(ids, height, width), codes)
    assert torch.equal(SMALL.is_code(ids[0]), SMALL.cells(height, width))


def test_rows_are_laid_one_after_another_each_with_a_newline():
    codes = torch.tensor([[0, 1, 2], [3, 4, 0]])
    assert SMALL.to_tokens(codes).tolist() == [10, 11, 12, 3, 13, 14, 10, 3]
    assert SMALL.cells(2, 3).tolist() == [True, True, True, False] * 2


def test_a_transposed_grid_is_not_taken_for_the_other():
    ids = SMALL.to_tokens(torch.tensor([[0, 1, 2], [3, 4, 0]]))
    with pytest.raises(ValueError, match="3 × 2 codes has 9 ids, including newlines, got 8"):
        SMALL.to_codes(ids, 3, 2)


def test_ids_outside_the_codebook_are_named():
    ids = SMALL.to_tokens(torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match=r"codes are ids 10 .. 14, got 15 at \[0, 1\]"):
        SMALL.to_codes(torch.tensor([10, 15, 3]), 1, 2)
    with pytest.raises(ValueError, match=r"a row ends in newline 3, got 10 at \[0\]"):
        SMALL.to_codes(torch.tensor([10, 11, 10]), 1, 2)
    with pytest.raises(ValueError, match=r"below num_codes 5, got 5 at \[0, 1\]"):
        SMALL.to_tokens(torch.tensor([[0, 5]]))
    assert ids.tolist() == [10, 11, 3]


def test_marks_must_differ_from_the_codes_and_from_one_another():
    with pytest.raises(ValueError, match="newline_id must be an id outside the codes, got 12"):
        ImageLayout(code_offset=10, num_codes=5, newline_id=12, begin_id=1, end_id=2)
    with pytest.raises(ValueError, match="must be different ids"):
        ImageLayout(code_offset=10, num_codes=5, newline_id=1, begin_id=1, end_id=2)
    with pytest.raises(ValueError, match="num_codes must be at least 1, got 0"):
        ImageLayout(code_offset=10, num_codes=0, newline_id=3, begin_id=1, end_id=2)


def test_lumina_writes_512_pixels_square_as_1056_ids():
    ids = ImageLayout().to_tokens(torch.full((32, 32), 8191))
    assert len(ids) == 1056
    assert ids[:33].tolist() == [134547] * 32 + [126084]
