"""What the figures mean, in a sentence each, for readers of the report."""

MEANINGS = {
    "exact": "boards equal to their solution in every cell",
    "valid": "boards that break no rule, the solution or not",
    "replay": "of the wrong cells that were re-masked, those later decoded to the same wrong digit",
    "conflicts": "cells per final board that break a rule",
    "fixed": "cells per board that were wrong at the start and right at the end",
    "broken": "cells per board that were right at the start and wrong at the end",
    "remasked": "times per board that a visible cell became MASK",
    "revealed": "times per board that MASK became a digit",
    "oscillating": "cells per board that were re-masked more than once",
    "first_remask_precision": "of the cells re-masked first, those that really were wrong",
    "first_remask_recall": "of the wrong cells, those re-masked first",
    "mask_calibration_error": "mean gap between p(MASK) and the share of cells really wrong",
    "forward_passes": "times the model ran, per sample",
    "as_near": "boards that end as another valid board, no further from the given one",
    "ambiguous": "boards with another valid board at least as near as the solution",
    "ceiling": "what the best possible reviser would end exactly right, guessing among equals",
    "solved": "responses whose steps are all true and reach the target",
    "true_steps": "of all steps written, those true by themselves",
    "returned": "of the positions re-masked, those that end as what they first were",
    "wrong_share": "of the cells with this belief in MASK, those really wrong",
}
