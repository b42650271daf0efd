"""Apollo for plain torch; ``fairseq_apollo`` and ``milestone_lr`` register it and its schedule with fairseq."""

from fairseq_luna.optim.apollo import Apollo

__all__ = ["Apollo"]
