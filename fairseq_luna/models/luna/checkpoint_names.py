"""State dicts of the Luna paper's authors and of other versions of fairseq, converted to this package's names."""

import re

from torch import Tensor

StateDict = dict[str, Tensor]

# The authors' names and ours.
RENAMED = {
    "self_atten_proj_layer_norm": "self_attn_packed_layer_norm",
    "encoder_atten_proj_layer_norm": "encoder_attn_packed_layer_norm",
    "layernorm_porjected_embedding": "layernorm_packed_embedding",
    "encoder.projected_embeddings": "encoder.packed_embeddings",
    "encoder.proj_layer_norm": "encoder.packed_layer_norm",
}

# Unused by the authors' model: positions, and the norm of a packed sequence that no layer reads.
UNREAD = re.compile(r"^(decoder\.proj_layer_norm\.(weight|bias)|encoder\.projected_positions)$")


def translate(state_dict: StateDict) -> None:
    """Rename the authors' parameters in place and drop those that their model does not use."""
    for old in list(state_dict):
        new = old
        for theirs, ours in RENAMED.items():
            new = new.replace(theirs, ours)
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
