"""Where a parameter of the new model comes from if the old one has none of its name and shape."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch.nn.functional as F
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor, nn

from ...models.luna.encoder import LunaEncoder
from ...models.luna.layers import LunaDecoderLayer, LunaEncoderLayer
from ...modules import LunaAttention, LunaCausalAttention
from ...modules.adaptive_span import AdaptiveSpans
from ...modules.block_attention import TwoLevelAttention
from ...modules.external_attention import ExternalProjections
from ...modules.fastformer_attention import FastformerProjections
from ...modules.linformer_attention import LinformerProjections
from ...modules.nystrom_attention import NystromAttention
from ...modules.pattern_attention import LongformerAttention
from ...modules.reformer_attention import ReformerAttention
from ...modules.retention import Retention
from ...modules.short_convolution import ShortConvolution


class Rule(NamedTuple):
    """For one child module or parameter.

    Args:
        names: those of the same module of the old model that serve as well, the best first.
        start: fills the new parameter if the old model has none of them; None: it stays as the model starts it.
        fit: fills the new parameter from one of the old model that has another shape; None: that one does not serve.
    """

    names: tuple[str, ...] = ()
    start: Callable[[Tensor], object] | None = None
    fit: Callable[[Tensor, Tensor], object] | None = None


def zero(new: Tensor) -> None:
    new.zero_()


def whole(new: Tensor) -> None:
    new.fill_(1)


def identity(new: Tensor) -> None:
    """The weight and the bias of a linear map that changes nothing."""
    if new.dim() == 2:
        nn.init.eye_(new)
    else:
        new.zero_()


def opened(new: Tensor) -> None:
    """The weight and the bias of a gate whose swish is 1."""
    new.fill_(1.2784645 if new.dim() == 1 else 0)


def first_part(new: Tensor, old: Tensor) -> None:
    """What both have is taken: the first slots, or the first positions."""
    both = tuple(slice(min(sizes)) for sizes in zip(new.shape, old.shape, strict=True))
    new[both] = old[both]


def beside_zero(new: Tensor, old: Tensor) -> None:
    """The weight of a linear map of two concatenated vectors, of which the second changes nothing yet."""
    new.zero_()
    new[:, : old.shape[1]] = old


def same_middle(new: Tensor, old: Tensor) -> None:
    """The kernel of a bidirectional convolution, with zeros or less at both ends."""
    more = (new.shape[1] - old.shape[1]) // 2
    new.copy_(F.pad(old, (more, more)))


def same_end(new: Tensor, old: Tensor) -> None:
    """The kernel of a causal convolution, whose last number is of the newest step."""
    new.copy_(F.pad(old, (new.shape[1] - old.shape[1], 0)))


# The slots of Luna's pack attention start as means of steps, so that the unpack attention reads them as the transformer
# reads the steps. Where two projections are one, it is that of the values.
RULES: dict[type[nn.Module], Mapping[str, Rule]] = {
    LunaAttention: {
        "pq_proj": Rule(("q_proj",)),
        "pk_proj": Rule(("pc_proj", "k_proj")),
        "pv_proj": Rule(("pc_proj",), start=identity),
        "pc_proj": Rule(("pv_proj",), start=identity),
        "c_proj": Rule(("v_proj",)),
        "k_proj": Rule(("c_proj",)),
        "v_proj": Rule(("c_proj",)),
    },
    LunaCausalAttention: {
        "pq_proj": Rule(("q_proj",)),
        "pc_proj": Rule(("k_proj",)),
        "c_proj": Rule(("v_proj",)),
        "k_proj": Rule(("c_proj",)),
        "v_proj": Rule(("c_proj",)),
    },
    LunaEncoder: {
        "packed_embeddings": Rule(fit=first_part),
        "layernorm_packed_embedding": Rule(("layernorm_embedding",)),
        "packed_layer_norm": Rule(("layer_norm",)),
    },
    LunaEncoderLayer: {"self_attn_packed_layer_norm": Rule(("self_attn_layer_norm",))},
    LunaDecoderLayer: {"encoder_attn_packed_layer_norm": Rule(("encoder_attn_layer_norm",))},
    FastformerProjections: {"k_proj": Rule(("q_proj",)), "v_proj": Rule(("q_proj",))},
    TwoLevelAttention: {
        "block_q_proj": Rule(("q_proj",)),
        "block_k_proj": Rule(("k_proj",)),
        "block_v_proj": Rule(("v_proj",)),
        "out_proj": Rule(fit=beside_zero),
    },
    ExternalProjections: {"keys": Rule(fit=first_part), "values": Rule(fit=first_part)},
    LinformerProjections: {"key_sums": Rule(fit=first_part), "value_sums": Rule(("key_sums",), fit=first_part)},
    LongformerAttention: {
        "first_q_proj": Rule(("q_proj",)),
        "first_k_proj": Rule(("k_proj",)),
        "first_v_proj": Rule(("v_proj",)),
    },
    NystromAttention: {"kernel": Rule(start=zero)},
    AdaptiveSpans: {"span": Rule(start=whole)},  # heads see the whole window, as those of a transformer
    Retention: {"gate_proj": Rule(start=opened)},
    LearnedPositionalEmbedding: {"weight": Rule(fit=first_part)},
}
# For any module in the place of one of these in the old model, unless RULES has one.
RULES_FROM: dict[type[nn.Module], Mapping[str, Rule]] = {
    TwoLevelAttention: {"out_proj": Rule(fit=first_part)},  # what it makes of the first level
    FastformerProjections: {"k_proj": Rule(("q_proj",)), "v_proj": Rule(("q_proj",))},
    LunaAttention: {"k_proj": Rule(("pc_proj",)), "v_proj": Rule(("c_proj",))},
    LunaCausalAttention: {"k_proj": Rule(("pc_proj",)), "v_proj": Rule(("c_proj",))},
    ReformerAttention: {"k_proj": Rule(("q_proj",))},
}


def rules_of(model: nn.Module, old: nn.Module) -> dict[str, Rule]:
    """The rule of each child module or parameter of ``model`` that has one; its names are whole too."""
    found = {}
    before = dict(old.named_modules())
    for prefix, module in model.named_modules():
        theirs = before.get(prefix)
        for rules in (*_of_kind(RULES_FROM, theirs), *_of_kind(RULES, module)):
            for name, rule in rules.items():
                names = tuple(f"{prefix}.{other}" for other in rule.names)
                found[f"{prefix}.{name}"] = rule._replace(names=names)
        if isinstance(module, ShortConvolution):
            fit = same_end if prefix.startswith("decoder.") else same_middle
            found[f"{prefix}.weight"] = Rule(start=zero, fit=fit)
    return found


def _of_kind(table: dict[type[nn.Module], Mapping[str, Rule]], module: nn.Module | None) -> list[Mapping[str, Rule]]:
    return [rules for kind, rules in table.items() if isinstance(module, kind)]
