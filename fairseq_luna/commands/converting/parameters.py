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
from ...modules.conversion import Rule, Rules, first_part, same_end, same_middle, zero
from ...modules.short_convolution import ShortConvolution
from ...usage_error import UsageError

# Rules of modules that are no attentions; an attention has its own in ``conversion_rules``.
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


class Part(NamedTuple):
    """A parameter or buffer: whether it comes from the old model, and how it is filled, in words."""

    name: str
    numbers: int
    taken: bool
    origin: str = ""


def build(settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> nn.Module:
    """Build a model of ``settings`` with as many words as ``state`` has embeddings.

    Raises:
        UsageError: the settings describe no model.
    """
    source, target = (len(state[f"{side}.embed_tokens.weight"]) for side in ("encoder", "decoder"))
    words = {size: made_up_dictionary(size) for size in (source, target)}
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
        found = model.load_state_dict(state, strict=False)
    except (RuntimeError, UsageError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error
    odd = [name for name in (*found.missing_keys, *found.unexpected_keys) if not NO_PARAMETER.search(name)]
    if odd:
        raise UsageError(f"{path}: its settings do not explain {', '.join(odd[:3])}")
    return model


@torch.no_grad()
def convert(old: nn.Module, new: nn.Module) -> tuple[list[Part], list[Part]]:
    """Fill ``new``, in place.

    Returns:
        The parts of ``new``, and the parts of ``old`` that it does not take. Shared tensors count once, the first.
    """
    theirs = {name: value for name, value in old.state_dict().items() if not NO_PARAMETER.search(name)}
    rules = rules_of(new, old)
    made: dict[int, Part] = {}
    taken = set()
    state = new.state_dict()
    for name, value in state.items():
        if value.data_ptr() in made or NO_PARAMETER.search(name):
            continue
        stem = name if name in rules else name.rpartition(".")[0]
        rule = rules.get(stem, Rule())
        names = [other + name.removeprefix(stem) for other in (stem, *rule.names)]
        found = [other for other in names if other in theirs and (theirs[other].shape == value.shape or rule.fit)]
        if _seeds_other_shapes(name, state, theirs):
            found = []
        if found:
            source = theirs[found[0]]
            taken.add(source.data_ptr())
            origin = _copied(value, source, rule)
            if found[0] != names[0]:
                origin = f"from {rule.names[names.index(found[0]) - 1].rpartition('.')[2]}"
        else:
            without_bias = name.endswith(".bias") and any(f"{other[:-5]}.weight" in theirs for other in names)
            origin = _started(value, Rule(start=zero) if without_bias and not rule.start else rule)
        made[value.data_ptr()] = Part(name, value.numel(), bool(found), origin)
    left = [
        Part(name, value.numel(), taken=False)
        for name, value in old.named_parameters()
        if value.data_ptr() not in taken and not NO_PARAMETER.search(name)
    ]
    return list(made.values()), left


def _seeds_other_shapes(name: str, new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> bool:
    """Whether ``name`` is the seed of random numbers that have another shape in ``old``."""
    drawn = [name.removesuffix("seed") + part for part in ("directions", "matrices")] if name.endswith(".seed") else []
    return any(part in old and part in new and old[part].shape != new[part].shape for part in drawn)


def _copied(new: Tensor, old: Tensor, rule: Rule) -> str:
    if new.shape == old.shape or rule.fit is None:
        new.copy_(old)
        return "the same"
    rule.fit(new, old)
    return rule.fit.__name__.replace("_", " ")


def _started(new: Tensor, rule: Rule) -> str:
    if rule.start is None:
        return "new"
    rule.start(new)
    return rule.start.__name__


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


def made_up_dictionary(entries: int) -> Dictionary:
    """A dictionary of ``entries`` words: fairseq's special symbols, ``w0``, ``w1`` and so on."""
    made = Dictionary()
    for number in range(entries - len(made)):
        made.add_symbol(f"w{number}")
    return made
