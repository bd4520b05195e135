"""Learning-rate schedules as pure functions of the update and the progress of the run."""

from __future__ import annotations

import math

from glassformer.config import TrainingConfig

__all__ = ["lr_factor"]


def lr_factor(config: TrainingConfig, *, update: int, warmup_steps: int, progress: float) -> float:
    """Factor of the peak rate that update number `update` (from 1) uses.

    With w = warmup_steps, s = update and p the share of the run that is over when the update starts (0 .. 1):
        warm-up: s / w while s <= w, in every schedule; the first update has 1/w, update w has 1
        inverse_sqrt: sqrt(w / s) (Vaswani et al. 2017, section 5.3, with its peak made explicit)
        cosine: m + (1 - m)(1 + cos(pi p)) / 2, m = min_lr_share
        wsd: 1 until p = stable_share, then linear to m at p = 1
        constant: 1
    """
    if update <= warmup_steps:
        return update / warmup_steps
    floor = config.min_lr_share
    progress = min(max(progress, 0.0), 1.0)
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(warmup_steps, 1) / update)
    if config.schedule == "cosine":
        return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2
    if config.schedule == "wsd" and progress > config.stable_share:
        return 1 - (1 - floor) * (progress - config.stable_share) / (1 - config.stable_share)
    return 1.0
