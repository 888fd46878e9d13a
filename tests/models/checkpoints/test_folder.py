"""Checksums of checkpoint folders: what is read is what was saved."""

import shutil
import subprocess

import pytest
import torch

from remask.models import CheckpointError, SudokuConfig, SudokuMDM, fingerprint, load, save
from remask.models.checkpoints.adapter import AdapterSettings, add_lora, save_adapter
from remask.models.checkpoints.folder import SUMS
from remask.models.images.tokenizer_folder import load_tokenizer, save_tokenizer
from remask.models.images.vq import PatchVQ, PatchVQConfig


def small():
    torch.manual_seed(0)
    return SudokuMDM(SudokuConfig(side=4, layers=1, width=16, heads=2))


def flip(path, at=-5):
    """One bit of the last tensor, or wherever else."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_in_a_model_is_noticed(tmp_path):
    save(small(), tmp_path / "model")
    load(tmp_path / "model")
    flip(tmp_path / "model" / "model.safetensors")
    message = r"model\.safetensors does not match its checksum in SHA256SUMS"
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "model")


def test_a_config_that_was_changed_is_noticed_and_may_be_accepted(tmp_path):
    save(small(), tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace('"decay": 0.9', '"decay": 0.8'))
    with pytest.raises(CheckpointError, match=r"config\.json does not match .* remove SHA256SUMS"):
        load(tmp_path / "model")
    (tmp_path / "model" / SUMS).unlink()
    assert load(tmp_path / "model").history.decay == 0.8


def test_a_flipped_bit_in_an_adapter_is_noticed(tmp_path):
    save(small(), tmp_path / "base")
    backbone = load(tmp_path / "base")
    add_lora(backbone, 2, 4.0)
    settings = AdapterSettings(
        base=str(tmp_path / "base"),
        base_fingerprint=fingerprint(tmp_path / "base"),
        rank=2,
        alpha=4.0,
        history=backbone.history,
    )
    save_adapter(backbone, tmp_path / "adapter", settings)
    load(tmp_path / "adapter")
    flip(tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        load(tmp_path / "adapter")


def test_a_flipped_bit_in_an_image_tokeniser_is_noticed(tmp_path):
    save_tokenizer(PatchVQ(PatchVQConfig(patch=4, num_codes=8)), tmp_path / "vq")
    load_tokenizer(tmp_path / "vq")
    flip(tmp_path / "vq" / "model.safetensors")
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        load_tokenizer(tmp_path / "vq")


def test_the_checksums_change_neither_the_fingerprint_nor_what_may_be_replaced(tmp_path):
    save(small(), tmp_path / "model", card="# A model\n")
    before = fingerprint(tmp_path / "model")
    save(small(), tmp_path / "model")  # over itself
    (tmp_path / "model" / SUMS).unlink()
    assert fingerprint(tmp_path / "model") == before
    load(tmp_path / "model")  # as others publish them, without


def test_a_card_may_be_edited(tmp_path):
    save(small(), tmp_path / "model", card="# A model\n")
    (tmp_path / "model" / "README.md").write_text("# My model\n")
    load(tmp_path / "model")


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="there is no sha256sum command")
def test_sha256sum_reads_the_checksums(tmp_path):
    save(small(), tmp_path / "model", card="# A model\n")
    done = subprocess.run(
        ["sha256sum", "--strict", "-c", SUMS],
        cwd=tmp_path / "model",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{x}: OK" for x in ("README.md", "config.json", "model.safetensors")
    ]
