import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remask.models.images.edit_rows import EditLayout
from remask.models.images.tokens import ImageLayout

# Words are 20 to 29; the template puts 18 before the instruction and 19 after it.
IMAGE = ImageLayout(code_offset=10, num_codes=5, newline_id=3, begin_id=1, end_id=2)
PLAIN = EditLayout(image=IMAGE, unconditional_id=4, answer_id=5, answer_end_id=6)
FRAMED = EditLayout(
    image=IMAGE, unconditional_id=4, answer_id=5, answer_end_id=6, text_begin_id=18, text_end_id=19
)
SOURCE, TARGET = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[0, 4], [2, 3]])


def test_the_source_lies_in_the_canvas():
    row = PLAIN.row([20, 21], SOURCE, TARGET, "canvas")
    assert row.target.tolist() == [20, 21, 5, 1, 10, 14, 3, 12, 13, 3, 2, 6]
    assert row.wrong.tolist() == [20, 21, 5, 1, 10, 11, 3, 12, 13, 3, 2, 6]
    assert row.editable.nonzero()[:, 0].tolist() == [4, 5, 7, 8]
    assert row.prompt_length == 4


def test_the_source_lies_in_the_prompt_before_its_last_token():
    row = PLAIN.row([20, 21, 19], SOURCE, TARGET, "prompt")
    image = [1, 10, 11, 3, 12, 13, 3, 2]
    assert row.target.tolist() == [20, 21, *image, 19, 5, 1, 10, 14, 3, 12, 13, 3, 2, 6]
    assert torch.equal(row.wrong, row.target)
    assert row.editable.nonzero()[:, 0].tolist() == [13, 14, 16, 17]
    assert row.prompt_length == 13


def test_without_marks_of_an_answer_the_canvas_follows_the_prompt():
    bare = EditLayout(image=IMAGE, unconditional_id=4, answer_id=None, answer_end_id=None)
    row = bare.row([20], torch.tensor([[1]]), torch.tensor([[2]]), "canvas")
    assert row.target.tolist() == [20, 1, 12, 3, 2]


def test_images_of_two_sizes_cannot_share_a_canvas():
    with pytest.raises(ValueError, match=r"got \[2, 2\] and \[1, 2\] codes"):
        PLAIN.row([20], SOURCE, TARGET[:1], "canvas")
    assert PLAIN.row([20], SOURCE, TARGET[:1], "prompt").editable.sum() == 2


@pytest.mark.parametrize("source_in", ["canvas", "prompt"])
def test_instruction_and_source_are_told_by_ids(source_in):
    row = FRAMED.row([17, 18, 20, 21, 22, 19], SOURCE, TARGET, source_in)
    ids = row.wrong[None]
    assert FRAMED.instruction(ids)[0].nonzero()[:, 0].tolist() == [2, 3, 4]
    actual = ids[FRAMED.source_cells(ids)]
    assert actual.tolist() == [10, 11, 12, 13]
    masked = torch.where(row.editable, 9, row.wrong)[None]  # as the canvas is when all is masked
    assert torch.equal(FRAMED.source_cells(masked), FRAMED.source_cells(ids))
    if source_in == "canvas":
        assert torch.equal(FRAMED.source_cells(ids)[0], row.editable)


def test_without_marks_the_whole_template_is_the_instruction():
    for source_in, expected in (("canvas", [0, 1, 2]), ("prompt", [0, 1])):
        ids = PLAIN.row([20, 21, 22], SOURCE, TARGET, source_in).target[None]
        assert PLAIN.instruction(ids)[0].nonzero()[:, 0].tolist() == expected


@given(words=st.integers(1, 4), source_in=st.sampled_from(["canvas", "prompt"]))
def test_a_row_without_text_reads_as_the_unconditional_row(words, source_in):
    row = FRAMED.row([17, 18, *range(20, 20 + words), 19], SOURCE, TARGET, source_in)
    ids, kept = FRAMED.without_text(row.target[None])
    expected = FRAMED.row([17, 18, 4, 19], SOURCE, TARGET, source_in).target
    assert torch.equal(ids[kept], expected)


def test_a_row_without_an_instruction_is_refused():
    """As where the model's layout has another mark before it than the rows have."""
    actual = FRAMED.row([17, 18, 20, 19], SOURCE, TARGET, "canvas").target
    without_instruction = FRAMED.row([17, 16, 20, 19], SOURCE, TARGET, "canvas").target
    with pytest.raises(ValueError, match="row 1 has no instruction to leave out.*text_begin_id 18"):
        FRAMED.without_text(torch.stack([actual, without_instruction]))


def test_luminas_row_of_512_pixels():
    codes = torch.zeros(32, 32, dtype=torch.long)
    row = EditLayout().row([100, 101], codes, codes, "prompt")
    assert len(row.target) == 2 + 2 * (1056 + 2) + 2
    assert row.target[[0, 1, 2, 1058, 1059, 1060, 1061, 1062]].tolist() == [
        100,
        126349,
        126356,
        126350,
        101,
        126354,
        126349,
        126356,
    ]
    assert row.target[-2:].tolist() == [126350, 126355]
