"""What a model is trained for: the losses of SPEC §4, by the recipe's `objective.kind`.

config.py     ObjectiveConfig, the recipe's `objective` section
objective.py  Objective, the interface of all kinds, and their registry
oracle.py     `rm`: cross-entropy to the oracle action τ, the paper's objective
masked.py     `sft` and `pretrain`: the masked-diffusion loss of the baselines
chunks.py     the head, applied to a chunk of positions at a time
result.py     OracleLoss, a loss and what is logged of it

Importing a module of this package registers its kinds: a new one needs a line below.
"""

from remask.training.objective.chunks import num_chunks
from remask.training.objective.config import ObjectiveConfig, StateWeights
from remask.training.objective.masked import FineTuningObjective, PretrainingObjective, masked_loss
from remask.training.objective.objective import OBJECTIVES, Objective, register_objective
from remask.training.objective.oracle import RevisionObjective, oracle_action, oracle_loss
from remask.training.objective.result import BINS, OracleLoss, Part

__all__ = [
    "BINS",
    "OBJECTIVES",
    "FineTuningObjective",
    "Objective",
    "ObjectiveConfig",
    "OracleLoss",
    "Part",
    "PretrainingObjective",
    "RevisionObjective",
    "StateWeights",
    "masked_loss",
    "num_chunks",
    "oracle_action",
    "oracle_loss",
    "register_objective",
]
