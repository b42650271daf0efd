"""Apollo for plain torch; its fairseq face and the milestone schedule are in the modules beside it."""

from fairseq_luna.optim.apollo import Apollo

__all__ = ["Apollo"]
