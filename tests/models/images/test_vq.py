import json

import pytest
import torch
from safetensors.torch import load_file

from remask import models
from remask.models import PatchVQ, PatchVQConfig
from remask.models.checkpoints.folder import CheckpointError

SMALL = PatchVQConfig(patch=4, num_codes=12, code_width=4, width=8, reach=1)


@pytest.fixture
def tokenizer():
    torch.manual_seed(0)
    return PatchVQ(SMALL)


def test_a_picture_becomes_a_grid_and_a_grid_a_picture(tokenizer):
    codes = tokenizer.encode(torch.rand(2, 3, 8, 20))
    assert (codes.shape, codes.dtype) == ((2, 2, 5), torch.int64)
    assert int(codes.min()) >= 0
    assert int(codes.max()) < tokenizer.num_codes == 12
    images = tokenizer.decode(codes)
    assert (images.shape, images.dtype) == ((2, 3, 8, 20), torch.float32)
    assert float(images.min()) >= 0
    assert float(images.max()) <= 1


def test_a_code_is_the_nearest_entry(tokenizer):
    images = torch.rand(3, 3, 8, 8)
    vectors = tokenizer.vectors(images)
    distances = (vectors[..., None, :] - tokenizer.codebook).norm(dim=-1)
    assert torch.equal(tokenizer.encode(images), distances.argmin(-1))


def test_a_code_depends_on_its_own_pixels_alone(tokenizer):
    images = torch.rand(1, 3, 16, 16)
    changed = images.clone()
    changed[:, :, 4:8, 8:12] = 1 - changed[:, :, 4:8, 8:12]
    moved = (tokenizer.vectors(images) != tokenizer.vectors(changed)).any(-1)[0]
    assert moved.nonzero().tolist() == [[1, 2]]


@pytest.mark.parametrize("reach", [0, 1, 2])
def test_a_changed_code_is_seen_no_farther_than_the_reach(reach):
    torch.manual_seed(0)
    tokenizer = PatchVQ(PatchVQConfig(patch=2, num_codes=8, code_width=4, width=8, reach=reach))
    codes = torch.zeros(1, 7, 7, dtype=torch.long)
    changed = codes.clone()
    changed[0, 3, 3] = 5
    vectors = [tokenizer.codebook[x] for x in (codes, changed)]
    differ = (tokenizer.decode_vectors(vectors[0]) != tokenizer.decode_vectors(vectors[1])).any(1)[
        0
    ]
    cells = differ.view(7, 2, 7, 2).any(3).any(1).nonzero()
    assert cells.amin(0).tolist() == [3 - reach] * 2
    assert cells.amax(0).tolist() == [3 + reach] * 2


def test_a_saved_tokenizer_comes_back(tokenizer, tmp_path):
    models.save_tokenizer(tokenizer, tmp_path / "vq")
    assert sorted(x.name for x in (tmp_path / "vq").iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "model.safetensors",
    ]
    loaded = models.load_tokenizer(tmp_path / "vq")
    images = torch.rand(2, 3, 12, 8)
    assert torch.equal(loaded.encode(images), tokenizer.encode(images))
    assert torch.equal(
        loaded.decode(loaded.encode(images)), tokenizer.decode(loaded.encode(images))
    )
    assert not any(x.requires_grad for x in loaded.parameters())
    assert load_file(tmp_path / "vq/model.safetensors").keys() == tokenizer.state_dict().keys()


def test_a_fingerprint_follows_the_weights(tokenizer, tmp_path):
    models.save_tokenizer(tokenizer, tmp_path / "one")
    models.save_tokenizer(tokenizer, tmp_path / "same")
    with torch.no_grad():
        tokenizer.codebook[3] += 1
    models.save_tokenizer(tokenizer, tmp_path / "other")
    one, same, other = (
        models.tokenizer_fingerprint(tmp_path / name) for name in ("one", "same", "other")
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(3, 8, 8), r"must be float \[B, 3, H, W\], got torch.float32 \[3, 8, 8\]"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "must be float"),
        (torch.rand(1, 1, 8, 8), r"got torch.float32 \[1, 1, 8, 8\]"),
        (torch.rand(1, 3, 8, 10), "multiples of 4 pixels, got 8 × 10"),
        (torch.full((1, 3, 8, 8), 255.0), r"must lie in \[0, 1\], got values in \[255, 255\]"),
        (torch.full((1, 3, 8, 8), torch.nan), r"must lie in \[0, 1\], got values in \[nan"),
    ],
)
def test_invalid_images_are_refused(tokenizer, images, message):
    with pytest.raises(ValueError, match=message):
        tokenizer.encode(images)


def test_codes_outside_the_codebook_are_refused(tokenizer):
    with pytest.raises(ValueError, match=r"below num_codes 12, got 12 at \[0, 0, 1\]"):
        tokenizer.decode(torch.tensor([[[0, 12]]]))
    with pytest.raises(ValueError, match=r"integers \[B, h, w\]"):
        tokenizer.decode(torch.zeros(2, 2))


def test_damaged_folders_are_refused_by_name(tokenizer, tmp_path):
    with pytest.raises(CheckpointError, match=r"no image tokeniser at .*nowhere: it lacks config"):
        models.load_tokenizer(tmp_path / "nowhere")
    models.save_tokenizer(tokenizer, tmp_path / "vq")
    config = tmp_path / "vq/config.json"
    settings = json.loads(config.read_text())
    for values, message in (
        ({"kind": "vq"}, "is not an image tokeniser's"),
        (settings | {"kind": "dalle"}, "holds a 'dalle' tokeniser of format 1"),
        (
            settings | {"config": settings["config"] | {"reach": 9}},
            "reach must be at most blocks, got 9 with",
        ),
        (settings | {"config": settings["config"] | {"width": 9}}, "the config says"),
    ):
        config.write_text(json.dumps(values))
        with pytest.raises(CheckpointError, match=message):
            models.load_tokenizer(tmp_path / "vq")
