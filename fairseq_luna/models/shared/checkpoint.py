"""State dicts of checkpoints: selecting layers, and explaining why one does not fit the model."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor, nn

from ...usage_error import CheckpointMismatch

StateDict = Mapping[str, Tensor]
# A pattern of parameter names, the flag that decides whether the parameter exists, and the flag of each axis.
Origin = tuple[str, ...]

WIDTH = "--{side}-embed-dim"
FFN = "--{side}-ffn-embed-dim"
# The first pattern that matches is used. fairseq's names, and those of this package's layers.
ORIGINS: tuple[Origin, ...] = (
    (r"\.embed_tokens\.", "--arch", "the dictionary", WIDTH),
    (r"\.embed_positions\.", "--{side}-learned-pos", "--max-{text}-positions", WIDTH),
    (r"\.adaptive_softmax\.", "--adaptive-softmax-cutoff", "--adaptive-softmax-cutoff", "--adaptive-softmax-cutoff"),
    (r"\.output_projection\.", "--adaptive-softmax-cutoff", "the dictionary", "--decoder-output-dim"),
    (r"\.project_out_dim\.", "--decoder-output-dim", "--decoder-output-dim", WIDTH),
    (r"\.layernorm_\w*embedding\.", "--layernorm-embedding", WIDTH),
    (r"coder\.\w*layer_norm\.", "--{side}-normalize-before", WIDTH),
    (r"\.fc1\.", "--arch", FFN, WIDTH),
    (r"\.fc2\.weight", "--arch", WIDTH, FFN),
    (r"\.encoder_attn", "--no-cross-attention", "--decoder-embed-dim", "--encoder-embed-dim"),
    (r"", "--arch", WIDTH, WIDTH),
)
NAMED = 3
# The flags by which names are those of one tensor.
SHARED = (
    (r"\.lm_head\.", "--untie-weights-roberta"),
    (r"\.(embed_tokens|output_projection|adaptive_softmax)\.", "--share-all-embeddings"),
    (r"", "--arch"),
)


class ExplainsMismatch(BaseFairseqModel):
    """A model that names tensors and flags if it cannot load a state dict."""

    # The flags of the subclass's own parameters.
    origins: ClassVar[tuple[Origin, ...]] = ()

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """See :meth:`fairseq.models.BaseFairseqModel.load_state_dict`.

        Raises:
            CheckpointMismatch: names tensors that do not fit and the flags that explain them.
        """
        try:
            loaded = super().load_state_dict(state_dict, strict, model_cfg, args)
        except CheckpointMismatch:
            raise
        except RuntimeError as error:
            difference = mismatch(self.state_dict(), state_dict, self.origins, strict=strict)
            if difference is None:
                raise
            raise CheckpointMismatch(difference) from error
        check_shared(self, state_dict)
        return loaded


class KeepsLayers(ExplainsMismatch):
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
    found = {name: layer.fullmatch(name) for name in state_dict}
    if len({match[2] for match in found.values() if match}) == len(kept):
        return dict(state_dict)
    places = {str(number): place for place, number in enumerate(sorted(kept))}
    pruned = {}
    for name, match in found.items():
        if match is None:
            pruned[name] = state_dict[name]
        elif match[2] in places:
            pruned[f"{match[1]}{places[match[2]]}{match[3]}"] = state_dict[name]
    return pruned


def check_shared(model: nn.Module, given: StateDict) -> None:
    """Raise CheckpointMismatch if tensors of ``given`` differ that are one in ``model``, which has the last of them."""
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        other = first.setdefault(id(parameter), name)
        a, b = given.get(other), given.get(name)
        if a is not None and b is not None and a.data_ptr() != b.data_ptr() and not torch.equal(a, b):
            flag = next(flag for pattern, flag in SHARED if re.search(pattern, name))
            raise CheckpointMismatch(
                f"does not fit the model: {other} and {name} are one tensor in the model and differ there. Check {flag}"
            )


def mismatch(own: StateDict, given: StateDict, origins: Sequence[Origin], *, strict: bool) -> str | None:
    """Describe in one line how ``given`` differs from the model's ``own`` state dict; None if it fits.

    The line names the first three tensors with both shapes, and the flags that decide about all that differ.

    Args:
        own, given: state dicts with the same naming.
        origins: the flags of parameters, in addition to :data:`ORIGINS`.
        strict: whether missing and unexpected tensors count.
    """
    described, flags = [], []
    for name in [*own, *(name for name in given if name not in own)]:
        ours, theirs = (tuple(state[name].shape) if name in state else None for state in (own, given))
        if ours == theirs or (not strict and None in (ours, theirs)):
            continue
        if theirs is None:
            described.append(f"{name} {ours} is missing")
        elif ours is None:
            described.append(f"{name} {theirs} is unexpected")
        else:
            described.append(f"{name} is {theirs}, the model's is {ours}")
        flags += _flags(name, ours, theirs, own, given, (*origins, *ORIGINS))
    if not described:
        return None
    more = f"; and {len(described) - NAMED} more" if len(described) > NAMED else ""
    check = "--arch" if "--arch" in flags else ", ".join(dict.fromkeys(flags))
    return f"does not fit the model: {'; '.join(described[:NAMED])}{more}. Check {check}"


def _flags(
    name: str, ours: tuple | None, theirs: tuple | None, own: StateDict, given: StateDict, origins: Sequence[Origin]
) -> list[str]:
    """The flags that decide whether the tensor exists, or about the axes in which its shapes differ."""
    side = name.split(".")[0]
    _, exists, *axes = next(origin for origin in origins if re.search(origin[0], name))
    if ours is None or theirs is None:
        layer = re.match(r"\w+(?:\.\w+)?\.layers\.\d+\.", name)
        whole = layer and not any(other.startswith(layer[0]) for other in (given if theirs is None else own))
        flags = ["--{side}-layers" if whole else exists]
    elif len(ours) != len(theirs):
        flags = [exists]
    else:
        flags = [flag for flag, a, b in zip(axes, ours, theirs, strict=False) if a != b]
    return [flag.format(side=side, text="source" if side == "encoder" else "target") for flag in flags]
