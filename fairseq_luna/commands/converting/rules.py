"""Where a parameter of the new model comes from if the old one has none of its name and shape."""

from dataclasses import replace

from fairseq.modules import LearnedPositionalEmbedding
from torch import nn

from ...models.luna.encoder import LunaEncoder
from ...models.luna.layers import LunaDecoderLayer, LunaEncoderLayer
from ...modules.conversion import Rule, Rules, first_part, same_end, same_middle, zero
from ...modules.short_convolution import ShortConvolution

# Of modules that are no attentions: attentions have theirs in ``conversion_rules``.
RULES: dict[type[nn.Module], Rules] = {
    LunaEncoder: {
        "packed_embeddings": Rule(fit=first_part),
        "layernorm_packed_embedding": Rule(("layernorm_embedding",)),
        "packed_layer_norm": Rule(("layer_norm",)),
    },
    LunaEncoderLayer: {"self_attn_packed_layer_norm": Rule(("self_attn_layer_norm",))},
    LunaDecoderLayer: {"encoder_attn_packed_layer_norm": Rule(("encoder_attn_layer_norm",))},
    LearnedPositionalEmbedding: {"weight": Rule(fit=first_part)},
}


def rules_of(model: nn.Module, old: nn.Module) -> dict[str, Rule]:
    """The rule of each child module or parameter of ``model`` that has one, by its whole name.

    Rules of the new module go before ``successor_rules`` of the old one in its place.
    """
    found = {}
    before = dict(old.named_modules())
    for prefix, module in model.named_modules():
        replaced: Rules = getattr(before.get(prefix), "successor_rules", {})
        for name, rule in {**replaced, **rules_of_class(module)}.items():
            names = tuple(f"{prefix}.{other}" for other in rule.names)
            found[f"{prefix}.{name}"] = replace(rule, names=names)
        if isinstance(module, ShortConvolution):
            fit = same_end if prefix.startswith("decoder.") else same_middle
            found[f"{prefix}.weight"] = Rule(start=zero, fit=fit)
    return found


def rules_of_class(module: nn.Module) -> Rules:
    """The rules for the children and parameters of ``module``."""
    for kind, rules in RULES.items():
        if isinstance(module, kind):
            return rules
    rules = getattr(module, "conversion_rules", {})
    return rules
