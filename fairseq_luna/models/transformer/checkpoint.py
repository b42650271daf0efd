"""Taking the layers that --encoder-layers-to-keep and --decoder-layers-to-keep name out of a checkpoint."""

import re
from collections.abc import Sequence

from torch import Tensor


def keep_layers(state_dict: dict[str, Tensor], side: str, kept: Sequence[int]) -> dict[str, Tensor]:
    """The weights without the layers of ``side`` that are not ``kept``; those get the numbers from 0 on.

    What has no more layers than that is returned as it is: a model that was trained with the flag has kept them.

    Args:
        state_dict: of a whole model, with the layers of ``side`` as ``encoder.layers.0`` and so on.
        side: "encoder" or "decoder".
        kept: numbers of layers, in any order: they stay in their own.
    """
    layer = re.compile(rf"({side}\.layers\.)(\d+)(\..*)")
    found = {name: layer.fullmatch(name) for name in state_dict}
    if len({match[2] for match in found.values() if match}) == len(kept):
        return state_dict
    places = {str(number): place for place, number in enumerate(sorted(kept))}
    pruned = {}
    for name, match in found.items():
        if match is None:
            pruned[name] = state_dict[name]
        elif match[2] in places:
            pruned[f"{match[1]}{places[match[2]]}{match[3]}"] = state_dict[name]
    return pruned
