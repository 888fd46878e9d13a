"""Everything that maps states to logits and logits to states."""

from remask.models.backbones.backbone import Backbone
from remask.models.backbones.dream import DreamConfig, DreamMDM
from remask.models.backbones.llada import LladaConfig, LladaMDM
from remask.models.backbones.lumina import LuminaConfig, LuminaMDM
from remask.models.backbones.masked_lm import MaskedLM, MaskedLMConfig
from remask.models.backbones.sudoku import SudokuConfig, SudokuMDM
from remask.models.checkpoints.checkpoint import CheckpointError, create, fingerprint, load, save
from remask.models.decoding.baselines import P2, Absorbing, ReMDM
from remask.models.decoding.beliefs import Sampling
from remask.models.decoding.loop import revise
from remask.models.decoding.policy import RevisionPolicy
from remask.models.decoding.revision import Action, Revision
from remask.models.decoding.two_phase import TwoPhase
from remask.models.history import HistoryConfig
from remask.models.images.edit_rows import EditLayout
from remask.models.images.guidance import Guidance
from remask.models.images.tokenizer import ImageTokenizer
from remask.models.images.tokenizer_folder import (
    load_tokenizer,
    save_tokenizer,
    tokenizer_fingerprint,
)
from remask.models.images.tokens import ImageLayout
from remask.models.images.vq import PatchVQ, PatchVQConfig

__all__ = [
    "P2",
    "Absorbing",
    "Action",
    "Backbone",
    "CheckpointError",
    "DreamConfig",
    "DreamMDM",
    "EditLayout",
    "Guidance",
    "HistoryConfig",
    "ImageLayout",
    "ImageTokenizer",
    "LladaConfig",
    "LladaMDM",
    "LuminaConfig",
    "LuminaMDM",
    "MaskedLM",
    "MaskedLMConfig",
    "PatchVQ",
    "PatchVQConfig",
    "ReMDM",
    "Revision",
    "RevisionPolicy",
    "Sampling",
    "SudokuConfig",
    "SudokuMDM",
    "TwoPhase",
    "create",
    "fingerprint",
    "load",
    "load_tokenizer",
    "revise",
    "save",
    "save_tokenizer",
    "tokenizer_fingerprint",
]
