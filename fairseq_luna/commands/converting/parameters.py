"""Parameters of the new model, filled from the parameters of the old one."""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor, nn

from ...checkpoint_files import NO_PARAMETER, check_finite
from ...models.luna.encoder import LunaEncoder
from ...models.luna.layers import LunaDecoderLayer, LunaEncoderLayer
from ...modules.conversion import Rule, Rules, align_centers, align_last, first_part, zero
from ...modules.short_convolution import ShortConvolution
from ...usage_error import UsageError

# Rules of modules that are not attentions; an attention has its own in ``conversion_rules``.
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


class ParameterOrigin(NamedTuple):
    """A parameter or buffer: whether it comes from the old model, and how it is filled, in words."""

    name: str
    numel: int
    is_copied: bool
    origin: str = ""


def build(settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> nn.Module:
    """Build a model of ``settings`` with as many words as ``state`` has embeddings.

    Raises:
        UsageError: the settings describe no model.
    """
    source, target = (len(state[f"{side}.embed_tokens.weight"]) for side in ("encoder", "decoder"))
    words = {size: placeholder_dictionary(size) for size in (source, target)}
    task = Namespace(source_dictionary=words[source], target_dictionary=words[target])
    model: nn.Module = build_model(Namespace(**settings), task)
    return model


def load_old(settings: Mapping[str, Any], state: dict[str, Tensor], path: Path) -> nn.Module:
    """Load the old model; older names of its parameters are renamed.

    Raises:
        UsageError: its settings do not describe it, or it holds a number that is not finite.
    """
    check_finite(path, state)
    model = build(settings, state)
    try:
        result = model.load_state_dict(state, strict=False)
    except (RuntimeError, UsageError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error
    odd = [name for name in (*result.missing_keys, *result.unexpected_keys) if not NO_PARAMETER.search(name)]
    if odd:
        raise UsageError(f"{path}: its settings do not explain {', '.join(odd[:3])}")
    return model


@torch.no_grad()
def convert_parameters(old: nn.Module, new: nn.Module) -> tuple[list[ParameterOrigin], list[ParameterOrigin]]:
    """Fill ``new``, in place.

    Returns:
        The parts of ``new``, and the parts of ``old`` that it does not take. Shared tensors count once, the first.
    """
    old_state = {name: value for name, value in old.state_dict().items() if not NO_PARAMETER.search(name)}
    rules = rules_of(new, old)
    parts_by_address: dict[int, ParameterOrigin] = {}
    copied_addresses = set()
    state = new.state_dict()
    for name, value in state.items():
        if value.data_ptr() in parts_by_address or NO_PARAMETER.search(name):
            continue
        rule_name = name if name in rules else name.rpartition(".")[0]
        rule = rules.get(rule_name, Rule())
        names = [old_name + name.removeprefix(rule_name) for old_name in (rule_name, *rule.names)]
        sources = [
            other for other in names if other in old_state and (old_state[other].shape == value.shape or rule.fit)
        ]
        if _seeds_other_shapes(name, state, old_state):
            sources = []
        if sources:
            source = old_state[sources[0]]
            copied_addresses.add(source.data_ptr())
            origin = _copy_parameter(value, source, rule)
            if sources[0] != names[0]:
                origin = f"from {rule.names[names.index(sources[0]) - 1].rpartition('.')[2]}"
        else:
            without_bias = name.endswith(".bias") and any(f"{other[:-5]}.weight" in old_state for other in names)
            origin = _initialize_parameter(value, Rule(start=zero) if without_bias and not rule.start else rule)
        parts_by_address[value.data_ptr()] = ParameterOrigin(name, value.numel(), bool(sources), origin)
    unused_parts = [
        ParameterOrigin(name, value.numel(), is_copied=False)
        for name, value in old.named_parameters()
        if value.data_ptr() not in copied_addresses and not NO_PARAMETER.search(name)
    ]
    return list(parts_by_address.values()), unused_parts


def _seeds_other_shapes(name: str, new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> bool:
    """Whether ``name`` is the seed of random numbers that have another shape in ``old``."""
    drawn = [name.removesuffix("seed") + part for part in ("directions", "matrices")] if name.endswith(".seed") else []
    return any(part in old and part in new and old[part].shape != new[part].shape for part in drawn)


def _copy_parameter(new: Tensor, old: Tensor, rule: Rule) -> str:
    if new.shape == old.shape or rule.fit is None:
        new.copy_(old)
        return "the same"
    rule.fit(new, old)
    return rule.fit.__name__.replace("_", " ")


def _initialize_parameter(new: Tensor, rule: Rule) -> str:
    if rule.start is None:
        return "new"
    rule.start(new)
    return rule.start.__name__


def rules_of(model: nn.Module, old: nn.Module) -> dict[str, Rule]:
    """The rule of each child module or parameter of ``model`` that has one, by its whole name.

    Rules of the new module go before ``successor_rules`` of the old one in its place.
    """
    rules = {}
    before = dict(old.named_modules())
    for prefix, module in model.named_modules():
        replaced: Rules = getattr(before.get(prefix), "successor_rules", {})
        for name, rule in {**replaced, **rules_of_class(module)}.items():
            names = tuple(f"{prefix}.{other}" for other in rule.names)
            rules[f"{prefix}.{name}"] = replace(rule, names=names)
        if isinstance(module, ShortConvolution):
            fit = align_last if prefix.startswith("decoder.") else align_centers
            rules[f"{prefix}.weight"] = Rule(start=zero, fit=fit)
    return rules


def rules_of_class(module: nn.Module) -> Rules:
    """The rules for the children and parameters of ``module``."""
    for kind, rules in RULES.items():
        if isinstance(module, kind):
            return rules
    rules = getattr(module, "conversion_rules", {})
    return rules


def placeholder_dictionary(entries: int) -> Dictionary:
    """A dictionary of ``entries`` words: fairseq's special symbols, ``w0``, ``w1`` and so on."""
    dictionary = Dictionary()
    for number in range(entries - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary
