import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from remask import models
from remask.models.checkpoints.folder import CheckpointError
from remask.models.images.published_vq import DiffusersVQ

diffusers = pytest.importorskip("diffusers")


@pytest.fixture(scope="module")
def published():
    """A VQModel in small, of Lumina-DiMOO's build: blocks that halve, entries looked up."""
    torch.manual_seed(0)
    vq = diffusers.VQModel(
        block_out_channels=(8, 8, 16),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        latent_channels=6,
        num_vq_embeddings=20,
        norm_num_groups=4,
        vq_embed_dim=6,
        mid_block_add_attention=False,
        lookup_from_codebook=True,
    )
    with torch.no_grad():  # entries among what pictures give, or all would have the same code
        latents = vq.eval().encode(torch.rand(5, 3, 8, 8)).latents
        vq.quantize.embedding.weight.copy_(latents.movedim(1, -1).reshape(20, 6))
    return vq


@pytest.fixture
def folder(published, tmp_path):
    published.save_pretrained(tmp_path / "lumina" / "vqvae")
    return tmp_path / "lumina"


def test_it_encodes_and_decodes_as_published(published, folder):
    tokenizer = models.load_tokenizer(folder)
    assert (tokenizer.patch, tokenizer.num_codes) == (4, 20)
    images = torch.rand(2, 3, 8, 12)
    codes = tokenizer.encode(images)
    with torch.no_grad():
        latents = published.encode(images).latents  # [B, C, h, w]
        book = published.quantize.embedding.weight
        nearest = (latents.movedim(1, -1)[..., None, :] - book).norm(dim=-1).argmin(-1)
        decoded = published.decode(codes.flatten(), force_not_quantize=True, shape=(2, 2, 3, 6))
    assert codes.shape == (2, 2, 3)
    assert len(codes.unique()) > 1
    assert torch.equal(codes, nearest)
    torch.testing.assert_close(tokenizer.decode(codes), decoded.sample.clamp(0, 1))


def test_the_folder_may_be_named_itself(folder):
    images = torch.rand(1, 3, 8, 8)
    one, other = (models.load_tokenizer(x) for x in (folder, folder / "vqvae"))
    assert torch.equal(one.encode(images), other.encode(images))
    assert models.tokenizer_fingerprint(folder) == models.tokenizer_fingerprint(folder / "vqvae")


def test_weights_that_lack_something_are_refused(folder):
    path = folder / "vqvae/diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    save_file({k: x for k, x in tensors.items() if k != "quantize.embedding.weight"}, path)
    with pytest.raises(CheckpointError, match=r"missing_keys \['quantize.embedding.weight'\]"):
        models.load_tokenizer(folder)
    path.unlink()
    with pytest.raises(CheckpointError, match="lacks diffusion_pytorch_model.safetensors"):
        models.load_tokenizer(folder)


def test_a_config_that_does_not_fit_is_refused(folder):
    path = folder / "vqvae/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"latent_channels": 7}))
    with pytest.raises(CheckpointError):
        models.load_tokenizer(folder)


def test_lumina_dimoo_halves_four_times():
    with torch.device("meta"):
        vq = diffusers.VQModel(
            block_out_channels=(128, 256, 256, 512, 768),
            down_block_types=("DownEncoderBlock2D",) * 5,
            up_block_types=("UpDecoderBlock2D",) * 5,
            layers_per_block=2,
            latent_channels=64,
            num_vq_embeddings=8192,
            mid_block_add_attention=False,
            lookup_from_codebook=True,
        )
    tokenizer = DiffusersVQ(vq)
    assert (tokenizer.patch, tokenizer.num_codes) == (16, 8192)
    images = torch.zeros(1, 3, 64, 96, device="meta")
    assert tokenizer.vq.encode(images).latents.shape == (1, 64, 4, 6)
