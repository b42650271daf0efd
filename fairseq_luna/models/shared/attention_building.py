"""Building the attentions of layers from the config, and sharing between the layers of a stack."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from fairseq.dataclass import ChoiceEnum
from torch import nn

from ...modules.argument_checks import NamedArguments
from ...modules.declaration import Attention, Flag, declared_attentions
from ...usage_error import ArgumentError, flag
from .config import OptionalInt, option

BuildAttention = Callable[[Any], nn.Module]
Built = TypeVar("Built", bound=nn.Module)
Names = Callable[[nn.Module], Iterable[str]]


# The flag of every family with a convolution, and the constructor argument that it sets.
KERNEL = {"attention_kernel_size": "kernel_size"}


def options_of(flags: Iterable[Flag]) -> dict[str, tuple[Any, Any]]:
    """The options of a flat config for declared flags: by name, the type and the dataclass field."""
    options = {}
    for each in flags:
        kind: Any = ChoiceEnum(list(each.choices)) if each.choices else each.kind
        options[each.name] = option(OptionalInt if each.default is None else kind, each.default, each.help)
    return options


def build_attention(attention: Attention, cfg: Any, place: str) -> nn.Module:
    """The ``attention`` of one layer, from the nested ``cfg``.

    Args:
        attention: a declaration that allows ``place``.
        cfg: the nested config, with a field for each flag that ``attention`` declares.
        place: "encoder" or "decoder" for a self-attention; a convolution precedes it if ``cfg`` asks for one. "source"
            for a cross-attention.

    Raises:
        UsageError: the attention refuses an option; the message names the flag.
    """
    side = "encoder" if place == "encoder" else "decoder"
    options = attention_options(cfg, getattr(cfg, side))
    names = {"embed_dim": flag(f"{side}_embed_dim"), "num_heads": flag(f"{side}_attention_heads")}
    if not attention.has_heads:
        del options["num_heads"]
    if place == "source":
        options["source_dim"] = cfg.encoder.embed_dim
    built = construct_from_flags(attention.constructor(place), cfg, attention.arguments(place), names=names, **options)
    if place != "source":
        convolve: Any = built.convolve
        construct_from_flags(convolve, cfg, KERNEL)
    return built


def softmax_cross_attention(cfg: Any) -> nn.Module:
    """fairseq's softmax attention to the encoder's output, with the flags of the nested ``cfg``."""
    return build_attention(declared_attentions()["softmax"], cfg, "source")


def attention_options(cfg: Any, side: Any) -> dict[str, Any]:
    """The constructor arguments of all attentions of this package, from the nested ``cfg`` and one of its sides."""
    return {
        "embed_dim": side.embed_dim,
        "num_heads": side.attention_heads,
        "dropout": cfg.attention_dropout,
        "q_noise": cfg.quant_noise.pq,
        "qn_block_size": cfg.quant_noise.pq_block_size,
    }


def construct_from_flags(
    constructor: Callable[..., Built],
    cfg: Any,
    flags: Mapping[str, str],
    *,
    names: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Built:
    """Call ``module`` with ``options`` and with the arguments that ``flags`` sets; see :func:`flag_options`.

    Args:
        module: a constructor, or another function of keyword arguments.
        cfg: the nested config.
        flags: config fields, and the arguments that they become.
        names: flags of further arguments, by argument: errors name the flag, not the argument.
        options: further arguments.
    """
    names = {**names, **{argument: flag(field) for field, argument in flags.items()}}
    try:
        instance = constructor(**options, **flag_options(cfg, flags))
    except ArgumentError as error:
        name, *message = error.args
        raise ArgumentError(names.get(name, name), *message) from error
    if isinstance(instance, NamedArguments):
        instance.argument_names = names
    return instance


def flag_options(cfg: Any, flags: Mapping[str, str]) -> dict[str, Any]:
    """Constructor arguments from ``flags``, fields of the nested ``cfg`` and their arguments; without None."""
    values = {argument: getattr(cfg, field) for field, argument in flags.items()}
    return {argument: value for argument, value in values.items() if value is not None}


class Sharing:
    """``build``, called for each layer of a stack: all attentions get the children and parameters of the first.

    The modules themselves differ, so that a forward hook on one is of one layer. ``names`` says of the first what is
    shared, such as ``q_proj`` or ``attention.key_sums``.
    """

    def __init__(self, build: BuildAttention, names: Names) -> None:
        self.build, self.names = build, names
        self.first: nn.Module | None = None

    def __call__(self, cfg: Any) -> nn.Module:
        module = self.build(cfg)
        if self.first is None:
            self.first = module
        for name in self.names(self.first):
            owner, _, last = name.rpartition(".")
            setattr(module.get_submodule(owner), last, getattr(self.first.get_submodule(owner), last))
        return module


def all_children(module: nn.Module) -> list[str]:
    """Names of the direct children: all that a module without parameters of its own consists of."""
    return [name for name, _ in module.named_children()]
