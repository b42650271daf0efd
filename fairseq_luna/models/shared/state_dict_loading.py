"""State dicts of checkpoints: selecting layers, and naming the tensors that do not fit the model."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor, nn

from ...usage_error import CheckpointMismatch

StateDict = Mapping[str, Tensor]
NAMED = 3  # of the tensors that do not fit
# Second copies of the weights in the encoder layers of fairseq 0.12.2, which are not trained.
UNTRAINED_COPY = re.compile(r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")


class MismatchErrorMixin(BaseFairseqModel):
    """A model that names tensors if it cannot load a state dict; ``compat`` adds the flags that differ."""

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """See :meth:`fairseq.models.BaseFairseqModel.load_state_dict`.

        A state without "version" is complete: there is one version of our models, and fairseq would take the state for
        one of its own from before there were final norms. The untrained copies of weights that fairseq 0.12.2 saves
        with its own transformers are ignored.

        Raises:
            CheckpointMismatch: names tensors that do not fit.
        """
        own = self.state_dict()
        state_dict = {
            name: value for name, value in state_dict.items() if name in own or not UNTRAINED_COPY.search(name)
        }
        state_dict |= {name: value for name, value in own.items() if name.endswith(".version")}
        try:
            loaded = super().load_state_dict(state_dict, strict, model_cfg, args)
        except CheckpointMismatch:
            raise
        except RuntimeError as error:
            difference = mismatch(self.state_dict(), state_dict, strict=strict)
            if difference is None:
                raise
            raise CheckpointMismatch(difference) from error
        check_shared(self, state_dict)
        return loaded


class LayersToKeepMixin(MismatchErrorMixin):
    """A model with fairseq's --encoder-layers-to-keep and --decoder-layers-to-keep."""

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """As in fairseq, but with each of the two flags applied to its own side.

        fairseq drops all layers of a side without the flag, and fails for a model that was trained with the flag. See
        :meth:`fairseq.models.BaseFairseqModel.load_state_dict` for the arguments; in ``model_cfg`` the number of layers
        that are left replaces the flag.
        """
        for side in ("encoder", "decoder"):
            name = f"{side}_layers_to_keep"
            kept = getattr(model_cfg, name, None)
            if kept:
                layers = [int(layer) for layer in kept.split(",")]
                state_dict = keep_layers(state_dict, side, layers)
                setattr(model_cfg, name, None)  # as fairseq does: the other layers are already removed
                setattr(model_cfg, f"{side}_layers", len(layers))
        return super().load_state_dict(state_dict, strict, model_cfg, args)


def keep_layers(state_dict: StateDict, side: str, kept: Sequence[int]) -> dict[str, Tensor]:
    """Return the state dict with only the layers ``kept`` of ``side``, renumbered from 0.

    A state dict that has no more layers is returned unchanged: the model was trained with the flag.

    Args:
        state_dict: of a whole model, with the layers of ``side`` as ``encoder.layers.0`` or
            ``encoder.sentence_encoder.layers.0`` and so on.
        side: "encoder" or "decoder".
        kept: layer numbers in any order; the layers keep theirs.
    """
    layer = re.compile(rf"({side}(?:\.\w+)?\.layers\.)(\d+)(\..*)")
    matches = {name: layer.fullmatch(name) for name in state_dict}
    if len({match[2] for match in matches.values() if match}) == len(kept):
        return dict(state_dict)
    places = {str(number): place for place, number in enumerate(sorted(kept))}
    pruned = {}
    for name, match in matches.items():
        if match is None:
            pruned[name] = state_dict[name]
        elif match[2] in places:
            pruned[f"{match[1]}{places[match[2]]}{match[3]}"] = state_dict[name]
    return pruned


def check_shared(model: nn.Module, state_dict: StateDict) -> None:
    """Raise CheckpointMismatch if tensors of ``state_dict`` differ that are one in ``model``.

    ``model`` has loaded the last of them.
    """
    for name, other in first_names(model).items():
        a, b = state_dict.get(other), state_dict.get(name)
        if a is not None and b is not None and a.data_ptr() != b.data_ptr() and not torch.equal(a, b):
            raise CheckpointMismatch(
                f"does not fit the model: {other} and {name} are one tensor in the model and differ there"
            )


def first_names(model: nn.Module) -> dict[str, str]:
    """The first name of each parameter, by all of its names; tied parameters have several."""
    first: dict[nn.Parameter, str] = {}
    every_name = model.named_parameters(remove_duplicate=False)
    return {name: first.setdefault(parameter, name) for name, parameter in every_name}


def mismatch(own: StateDict, state_dict: StateDict, *, strict: bool) -> str | None:
    """Name in one line the first three tensors that do not fit the model, or return None if all fit.

    Args:
        own, state_dict: state dicts of the model and of the checkpoint, with the same naming.
        strict: whether missing and unexpected tensors count.
    """
    described = []
    for name in [*own, *(name for name in state_dict if name not in own)]:
        own_shape, shape = (tuple(state[name].shape) if name in state else None for state in (own, state_dict))
        if own_shape == shape or (not strict and None in (own_shape, shape)):
            continue
        if shape is None:
            described.append(f"{name} {own_shape} is missing")
        elif own_shape is None:
            described.append(f"{name} {shape} is unexpected")
        elif name.endswith("embed_tokens.weight") and own_shape[0] != shape[0]:
            described.append(f"{name} is {shape} and the model's {own_shape}, because their dictionaries differ")
        else:
            described.append(f"{name} is {shape}, the model's is {own_shape}")
    if not described:
        return None
    more = f"; and {len(described) - NAMED} more" if len(described) > NAMED else ""
    return f"does not fit the model: {'; '.join(described[:NAMED])}{more}"
