"""Training steps that a GPU replays as one graph: ``--record-training``.

A step is the forward pass, fairseq's criterion and the backward pass of one batch. The first batch of a shape is
computed eagerly. The second one is recorded (:mod:`.recorded_step`), and from then on every batch of this shape is one
launch. :mod:`.recorded_training` decides this for each batch; :mod:`.trainer` puts it into fairseq's ``Trainer``.
"""

from .gradients import FlatGradients
from .recorded_step import RecordedStep
from .recorded_training import RecordedTraining

__all__ = ["FlatGradients", "RecordedStep", "RecordedTraining"]
