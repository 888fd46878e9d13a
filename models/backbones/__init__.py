"""Backbones: embeddings in, logits out. One file per model, with its published names.

Importing a backbone's module registers it, so every backbone is imported here.
"""

from remask.models.backbones.backbone import BACKBONES, Backbone, register_backbone
from remask.models.backbones.dream import DreamConfig, DreamMDM
from remask.models.backbones.llada import LladaConfig, LladaMDM
from remask.models.backbones.lumina import LuminaConfig, LuminaMDM
from remask.models.backbones.masked_lm import MaskedLM, MaskedLMConfig
from remask.models.backbones.sudoku import SudokuConfig, SudokuMDM

__all__ = [
    "BACKBONES",
    "Backbone",
    "DreamConfig",
    "DreamMDM",
    "LladaConfig",
    "LladaMDM",
    "LuminaConfig",
    "LuminaMDM",
    "MaskedLM",
    "MaskedLMConfig",
    "SudokuConfig",
    "SudokuMDM",
    "register_backbone",
]
