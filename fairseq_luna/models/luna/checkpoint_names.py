"""State dicts of the Luna paper's authors and of other versions of fairseq, converted to this package's names."""

import logging
import re

from torch import Tensor

from ...usage_error import CheckpointMismatch

logger = logging.getLogger(__name__)

StateDict = dict[str, Tensor]

# The authors' names and ours.
RENAMED = {
    "self_atten_proj_layer_norm": "self_attn_packed_layer_norm",
    "encoder_atten_proj_layer_norm": "encoder_attn_packed_layer_norm",
    "layernorm_porjected_embedding": "layernorm_packed_embedding",
    "encoder.projected_embeddings": "encoder.packed_embeddings",
    "encoder.proj_layer_norm": "encoder.packed_layer_norm",
    # Names of the authors' text encoders; the last is used in their Long Range Arena.
    "proj_emb_layer_norm": "layernorm_packed_embedding",
    "emb_layer_norm": "layernorm_embedding",
    "encoder.encoder.": "encoder.sentence_encoder.",
}
# Names that their program gives and no other does: every layer of theirs has one.
THEIRS = re.compile(r"\.projected_embeddings$|_atten_proj_layer_norm\.")
NORM = re.compile(r"norm\w*\.weight$")

# Unused by the authors' model: positions, and the norm of a packed sequence that no layer reads.
UNREAD = re.compile(r"^(decoder\.proj_layer_norm\.(weight|bias)|encoder\.projected_positions)$")


def convert_state_dict(state_dict: StateDict, *, norms_less_one: bool | None = None) -> None:
    """Convert a model of the authors' program in place; others stay as they are.

    Args:
        state_dict: of a model, or of a part of one.
        norms_less_one: whether the weights of its layer norms are stored less 1, as the authors' program does since
            2023 under unchanged names; None: they are if all are near 0.

    Raises:
        CheckpointMismatch: some are near 0, others near 1, and ``norms_less_one`` is None.
    """
    if is_of_the_authors(state_dict):
        norms = [name for name in state_dict if NORM.search(name)]
        if _norms_are_stored_less_one(state_dict, norms) if norms_less_one is None else norms_less_one:
            logger.info("1 is added to the weights of %d layer norms, which fairseq-apollo saves less 1", len(norms))
            state_dict.update({name: state_dict[name] + 1 for name in norms})
    rename(state_dict)


def is_of_the_authors(state_dict: StateDict) -> bool:
    """Whether a model, or a part of one with a layer, was saved by the authors' program."""
    return any(THEIRS.search(name) for name in state_dict)


def _norms_are_stored_less_one(state_dict: StateDict, norms: list[str]) -> bool:
    near_zero = {name: bool(state_dict[name].float().median() < 0.5) for name in norms}
    if len({*near_zero.values()}) == 2:
        zero, one = (next(name for name in norms if near_zero[name] is kind) for kind in (True, False))
        raise CheckpointMismatch(
            f"was saved by fairseq-apollo with weights of layer norms near 0 ({zero}) and near 1 ({one}), so that it"
            " cannot be told whether they are stored less 1, as since 2023: decide by"
            f" {__name__}.convert_state_dict(state['model'], norms_less_one=True) or =False, and save the state"
        )
    return any(near_zero.values())


def rename(state_dict: StateDict) -> None:
    """Rename the authors' parameters in place and drop the parameters that their model does not use."""
    for old in list(state_dict):
        new = old
        for published_part, part in RENAMED.items():
            new = new.replace(published_part, part)
        value = state_dict.pop(old)
        if not UNREAD.match(old):
            state_dict[new] = value


def drop_last_packed_norm(state_dict: StateDict, last_layer: int) -> None:
    """Drop, in place, the norm of the packed sequence of the decoder's last layer, which nothing reads."""
    for name in ("weight", "bias"):
        state_dict.pop(f"decoder.layers.{last_layer}.encoder_attn_packed_layer_norm.{name}", None)


def match_position_buffers(state_dict: StateDict, own: StateDict) -> None:
    """Add or remove, in place, the buffer of sinusoidal positions, which only some versions of fairseq save."""
    for side in ("encoder", "decoder"):
        name = f"{side}.embed_positions._float_tensor"
        state_dict.pop(name, None)
        if name in own:
            state_dict[name] = own[name]
