"""Everything that maps states to logits and logits to states."""

from models.backbone import Backbone
from models.baselines import P2, Absorbing, ReMDM
from models.beliefs import Sampling
from models.checkpoint import CheckpointError, create, fingerprint, load, save
from models.decoding import revise
from models.dream import DreamConfig, DreamMDM
from models.edit_rows import EditLayout
from models.guidance import Guidance
from models.history import HistoryConfig
from models.image_tokenizer import ImageTokenizer
from models.image_tokens import ImageLayout
from models.llada import LladaConfig, LladaMDM
from models.lumina import LuminaConfig, LuminaMDM
from models.masked_lm import MaskedLM, MaskedLMConfig
from models.policy import RevisionPolicy
from models.revision import Action, Revision
from models.sudoku import SudokuConfig, SudokuMDM
from models.tokenizer_folder import load_tokenizer, save_tokenizer, tokenizer_fingerprint
from models.two_phase import TwoPhase
from models.vq import PatchVQ, PatchVQConfig

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
