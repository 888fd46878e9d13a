"""The tokeniser's training, on pictures small enough to take seconds."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from remask import models
from remask.models import PatchVQConfig
from remask.pipeline.edits import EmojiPairs, ShapePairs
from remask.training.codebook import LearnConfig, _Codebook, _variance, learn, psnr, to_images
from remask.training.vq import VQRecipe, main, read_pictures
from tests.pipeline.pictures import write_pngs

SHAPE = PatchVQConfig(patch=4, num_codes=16, code_width=4, width=16, reach=0, blocks=1)
RECIPE = """
output: {output}
pairs: {{kind: shapes, side: 32}}
num_pairs: 20
num_held_out: 5
tokenizer: {{patch: 4, num_codes: 16, width: 16, code_width: 4}}
learning: {{steps: 30, batch_size: 4}}
"""


def blocks(count, seed=0):
    """Pictures of 4-pixel blocks in eight colours, which sixteen codes can hold without loss."""
    rng = np.random.default_rng(seed)
    colours = rng.integers(0, 256, (8, 3), dtype=np.uint8)
    return colours[rng.integers(0, 8, (count, 4, 4))].repeat(4, 1).repeat(4, 2)


def test_pictures_that_the_codebook_can_hold_are_learned_without_loss():
    pictures = blocks(64)
    config = LearnConfig(steps=300, batch_size=16, lr=1e-2)
    errors = []
    tokenizer = learn(pictures, SHAPE, config, 0, lambda step, error: errors.append(error))
    assert len(errors) == 300
    assert psnr(tokenizer, pictures) > 30
    assert len(tokenizer.encode(to_images(pictures)).unique()) >= 8


def test_the_same_seed_gives_the_same_tokenizer():
    one, same, other = (
        learn(blocks(16), SHAPE, LearnConfig(steps=5, batch_size=4), seed) for seed in (1, 1, 2)
    )
    for name, x in one.state_dict().items():
        assert torch.equal(x, same.state_dict()[name])
    assert not torch.equal(one.codebook, other.codebook)


@pytest.mark.parametrize(("dead_below", "finds_all"), [(0.0, False), (0.5, True)])
def test_entries_that_stand_for_nothing_move(dead_below, finds_all):
    """Four vectors and four entries that all begin as the first of them."""
    vectors = torch.eye(4)[:, None].repeat(1, 5, 1)  # [4, 5, 4]
    entries = torch.eye(4)[:1].repeat(4, 1)
    book = _Codebook(entries, LearnConfig(dead_below=dead_below))
    book._sums = entries.clone()
    generator = torch.Generator().manual_seed(0)
    for _ in range(400):
        codes = torch.cdist(vectors.flatten(0, 1), entries).argmin(-1)
        book.update(vectors, codes, generator)
    assert (len(codes.unique()) == 4) == finds_all


def test_the_variance_of_pictures_is_that_of_all_channels():
    pictures = np.random.default_rng(0).integers(0, 256, (5, 7, 3, 3), dtype=np.uint8)
    assert _variance(pictures) == pytest.approx(pictures.astype(float).var(), rel=1e-12)


def test_psnr_is_that_of_the_mean_square_over_all_pixels():
    class Darker(models.PatchVQ):
        def encode(self, images):
            return images

        def decode(self, codes):
            return codes - 0.1

    pictures = np.full((3, 8, 8, 3), 200, np.uint8)
    assert psnr(Darker(SHAPE), pictures) == pytest.approx(20.0, abs=1e-3)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "vq.yaml"
    path.write_text(RECIPE.format(output=tmp_path / "out"))
    return path


def test_the_command_writes_a_tokenizer_that_loads_and_does_it_once(recipe, tmp_path, capsys):
    main([str(recipe)])
    assert "30 of 30 units made" in capsys.readouterr().out
    tokenizer = models.load_tokenizer(tmp_path / "out")
    scores = json.loads((tmp_path / "out/scores.json").read_text())
    pictures, unreadable = read_pictures(ShapePairs(side=32), "held_out", 5)
    assert (len(pictures), unreadable) == (10, 0)
    assert scores["psnr_held_out"] == pytest.approx(psnr(tokenizer, pictures), abs=1e-3)
    print_before = models.tokenizer_fingerprint(tmp_path / "out/tokenizer")
    main([str(recipe)])
    assert "existed already" in capsys.readouterr().out
    assert models.tokenizer_fingerprint(tmp_path / "out/tokenizer") == print_before


def test_pairs_without_a_held_out_one_will_do(recipe, tmp_path):
    main([str(recipe), "pairs.held_out=0"])
    models.load_tokenizer(tmp_path / "out")
    assert "psnr_held_out" not in json.loads((tmp_path / "out/scores.json").read_text())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tokenizer.patch=5", "32 × 32 pixels do not divide into cells of 5"),
        ("learning.steps=0", "learning.steps must be at least 1, got 0"),
        ("learning.codebook_decay=1.0", r"codebook_decay must lie in [0, 1), got 1.0"),
        ("tokenizer.reach=3", "reach must be at most blocks"),
        ("num_pairs=0", "num_pairs must be at least 1"),
        ("pairs.kind=photos", "kind must be one of"),
    ],
)
def test_wrong_requests_exit_2_and_write_nothing(recipe, tmp_path, capsys, override, message):
    with pytest.raises(SystemExit) as caught:
        main([str(recipe), override])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_another_recipe_does_not_go_over_a_run(recipe, tmp_path, capsys):
    main([str(recipe)])
    with pytest.raises(SystemExit):
        main([str(recipe), "seed=4"])
    assert "was made by another recipe (different: seed 0 → 4)" in capsys.readouterr().err


def test_a_tokeniser_is_known_by_its_pictures_not_by_where_they_are(tmp_path):
    folders = [str(write_pngs(tmp_path / name)) for name in ("here", "there")]
    recipes = [
        VQRecipe(output=folder, pairs=EmojiPairs(folder=folder, people=0, edits=("add",)))
        for folder in folders
    ]
    assert recipes[0].content == recipes[1].content
    assert recipes[0].content["tokenizer"]["patch"] == recipes[0].tokenizer.patch
    other = replace(recipes[0], pairs=replace(recipes[0].pairs, seed=1))
    assert other.content != recipes[0].content
