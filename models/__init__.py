"""Everything that maps states to logits and logits to states."""

from models.backbone import Backbone
from models.baselines import P2, Absorbing, ReMDM
from models.beliefs import Sampling
from models.checkpoint import CheckpointError, create, fingerprint, load, save
from models.decoding import RevisionPolicy, revise
from models.dream import DreamConfig, DreamMDM
from models.history import HistoryConfig
from models.llada import LladaConfig, LladaMDM
from models.masked_lm import MaskedLM, MaskedLMConfig
from models.revision import Action, Revision
from models.sudoku import SudokuConfig, SudokuMDM

__all__ = [
    "P2",
    "Absorbing",
    "Action",
    "Backbone",
    "CheckpointError",
    "DreamConfig",
    "DreamMDM",
    "HistoryConfig",
    "LladaConfig",
    "LladaMDM",
    "MaskedLM",
    "MaskedLMConfig",
    "ReMDM",
    "Revision",
    "RevisionPolicy",
    "Sampling",
    "SudokuConfig",
    "SudokuMDM",
    "create",
    "fingerprint",
    "load",
    "revise",
    "save",
]
