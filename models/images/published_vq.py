"""Lumina-DiMOO's image tokeniser, which is aMUSEd's VQ, through diffusers' `VQModel`.

It is read from its published folder, config.json and safetensors. diffusers is imported only when
such a folder is read: `pip install remask[image]`.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from remask.models.checkpoints.folder import CheckpointError
from remask.models.checkpoints.sizes import on_meta
from remask.models.images.tokenizer import ImageTokenizer

WEIGHTS = "diffusion_pytorch_model.safetensors"
CLASS = "VQModel"
"""Value of `_class_name` in config.json."""


class DiffusersVQ(ImageTokenizer):
    """A `VQModel` behind our interface; it was trained on images in [0, 1]."""

    kind = "diffusers_vq"

    def __init__(self, vq: Any) -> None:
        super().__init__()
        self.vq, self.config = vq, vq.config
        self.num_codes = vq.config.num_vq_embeddings
        self.patch = 2 ** (
            len(vq.config.block_out_channels) - 1
        )  # each block but the last halves the resolution

    def _encode(self, images: Tensor) -> Tensor:
        latents = self.vq.encode(images).latents  # [B, C, h, w]
        codes = self.vq.quantize(latents)[2][2]
        return codes.view(len(images), *latents.shape[2:])

    def _decode(self, codes: Tensor) -> Tensor:
        entries = self.vq.quantize.embedding(codes).movedim(-1, 1)  # [B, C, h, w]
        latents = self.vq.post_quant_conv(entries)
        is_spatial = self.vq.config.norm_type == "spatial"
        return self.vq.decoder(latents, entries if is_spatial else None)


def load_published(folder: Path) -> DiffusersVQ:
    """Read a folder that diffusers wrote; CheckpointError unless all weights are there and fit."""
    try:
        from diffusers.models.autoencoders.vq_model import VQModel
    except ImportError as error:
        raise CheckpointError(
            f"{folder} needs diffusers, which is not installed; pip install 'remask[image]'"
        ) from error
    if not (folder / WEIGHTS).is_file():
        raise CheckpointError(f"{folder} lacks {WEIGHTS}; pickled weights are not read")
    try:
        # diffusers allocates what the config asks for, whatever the file holds.
        config: Any = VQModel.load_config(folder, local_files_only=True)
        with on_meta((folder / WEIGHTS).stat().st_size):
            VQModel.from_config(config)
        loaded: Any = VQModel.from_pretrained(
            folder, use_safetensors=True, local_files_only=True, output_loading_info=True
        )
    except CheckpointError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # diffusers does not validate the config
        raise CheckpointError(f"{folder} cannot be read by diffusers: {error}") from error
    vq, loading_info = loaded
    for name in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if loading_info[name]:
            raise CheckpointError(f"{folder / WEIGHTS}: {name} {sorted(loading_info[name])[:3]}")
    return DiffusersVQ(vq)
