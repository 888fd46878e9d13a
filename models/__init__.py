"""Everything that maps states to logits and logits to states."""

from remask.models.backbones import (
    Backbone,
    DreamConfig,
    DreamMDM,
    LladaConfig,
    LladaMDM,
    LuminaConfig,
    LuminaMDM,
    MaskedLM,
    MaskedLMConfig,
    SudokuConfig,
    SudokuMDM,
    register_backbone,
)
from remask.models.checkpoints.checkpoint import CheckpointError, create, fingerprint, load, save
from remask.models.decoding import (
    P2,
    Absorbing,
    Action,
    DecodeState,
    Observation,
    Policy,
    ReMDM,
    Revision,
    RevisionPolicy,
    Sampling,
    TwoPhase,
    register_policy,
    revise,
)
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
    "DecodeState",
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
    "Observation",
    "PatchVQ",
    "PatchVQConfig",
    "Policy",
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
    "register_backbone",
    "register_policy",
    "revise",
    "save",
    "save_tokenizer",
    "tokenizer_fingerprint",
]
