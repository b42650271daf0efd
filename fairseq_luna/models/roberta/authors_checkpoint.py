"""Text encoders that the Luna paper's authors trained: their ``luna_bert``, and the encoders of their ``lra``."""

import logging
import re
from collections import defaultdict

from fairseq.models.roberta import RobertaModel
from torch import Tensor

from ...usage_error import CheckpointMismatch
from ..luna.checkpoint_names import convert_state_dict, is_of_the_authors
from ..shared.state_dict_loading import first_names

logger = logging.getLogger(__name__)

StateDict = dict[str, Tensor]

# A parameter of a head of luna_bert, or of the classifier of lra.
HEAD = re.compile(r"classification_heads\.([^.]+)\.(\w+)|(classifier|pre_logits|sentence_projection_layer)\.")
# fairseq's head, which reads the first token's vector.
READS_FIRST = {"dense", "out_proj"}


def convert_text_encoder(state_dict: StateDict, model: RobertaModel) -> None:
    """Convert a checkpoint of the authors' text encoders in place; other checkpoints stay as they are.

    Heads that ``model`` cannot have are left out, with a log line that names them.

    Raises:
        CheckpointMismatch: ``model`` cannot compute the same, or as :func:`..luna.checkpoint_names.convert_state_dict`.
    """
    if not is_of_the_authors(state_dict):
        return
    if any(name.endswith(".projected_positions") for name in state_dict):
        raise CheckpointMismatch(
            "has sinusoidal positions and scaled embeddings, as fairseq-apollo's models of the Long Range Arena since"
            " 2022; luna_roberta's positions are learned: train it with --arch luna_roberta_base instead"
        )
    _leave_out_heads(state_dict, reads_first=model.args.pooling == "cls")
    convert_state_dict(state_dict)
    _complete(state_dict, model)


def _leave_out_heads(state_dict: StateDict, *, reads_first: bool) -> None:
    suffixes_by_head = defaultdict(set)
    for name in state_dict:
        if match := HEAD.match(name):
            suffixes_by_head[match[1] or match[3]].add(match[2])
    dropped_heads = [head for head, suffixes in suffixes_by_head.items() if suffixes != READS_FIRST or not reads_first]
    if dropped_heads:
        logger.warning("left out, because this model has no heads that compute the same: %s", ", ".join(dropped_heads))
    for name in list(state_dict):
        match = HEAD.match(name)
        if match and (match[1] or match[3]) in dropped_heads:
            del state_dict[name]


def _complete(state_dict: StateDict, model: RobertaModel) -> None:
    """Add the other names of shared tensors, and the language model, which some encoders lack."""
    for name, other in first_names(model).items():
        if other in state_dict:
            state_dict.setdefault(name, state_dict[other])
    language_model = "encoder.lm_head."
    if not any(name.startswith(language_model + "dense") for name in state_dict):
        logger.warning(
            "%s* is not in the checkpoint, which is of no language model, and is not changed", language_model
        )
    for name, value in model.state_dict().items():
        if name.startswith(language_model):
            state_dict.setdefault(name, value)
