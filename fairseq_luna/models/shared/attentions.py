"""How the attentions of layers are built from the config, and what those of several layers share."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from torch import nn

from ...modules import SoftmaxSourceAttention
from ...modules.checks import NamedArguments
from ...usage_error import ArgumentError, flag

BuildAttention = Callable[[Any], nn.Module]
Made = TypeVar("Made", bound=nn.Module)
Names = Callable[[nn.Module], Iterable[str]]


# Of the self-attentions of families, as the flags of a factory.
KERNEL = {"attention_kernel_size": "kernel_size"}


class Factory(NamedTuple):
    """Builds an attention for one place: "encoder", "decoder", or "source" for that of the decoder to the source.

    Args:
        module: called with the options of all attentions, in the place "source" with ``source_dim`` too, and with
            those of ``flags``. docs/design.md says how its result is called.
        flags: fields of the config that it reads, and the constructor arguments that they become; a field that is None
            leaves the module's own default.
        unaligned: for the place "source", why its weights are no probabilities that --load-alignments can train.
    """

    module: Callable[..., nn.Module]
    flags: Mapping[str, str] = {}
    unaligned: str | None = None

    def build(self, cfg: Any, place: str) -> nn.Module:
        """The attention of one layer, from the nested ``cfg``."""
        side = "encoder" if place == "encoder" else "decoder"
        options = attention_options(cfg, getattr(cfg, side))
        if place == "source":
            options["source_dim"] = cfg.encoder.embed_dim
        names = {"embed_dim": flag(f"{side}_embed_dim"), "num_heads": flag(f"{side}_attention_heads")}
        return with_flags(self.module, cfg, self.flags, names=names, **options)


def source_attention(cfg: Any) -> nn.Module:
    """fairseq's softmax attention to the encoder's output, with the flags of the nested ``cfg``."""
    return Factory(SoftmaxSourceAttention).build(cfg, "source")


def attention_options(cfg: Any, side: Any) -> dict[str, Any]:
    """The constructor arguments of all attentions of this package, from the nested ``cfg`` and one of its sides."""
    return {
        "embed_dim": side.embed_dim,
        "num_heads": side.attention_heads,
        "dropout": cfg.attention_dropout,
        "q_noise": cfg.quant_noise.pq,
        "qn_block_size": cfg.quant_noise.pq_block_size,
    }


def with_flags(
    module: Callable[..., Made],
    cfg: Any,
    flags: Mapping[str, str],
    *,
    names: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Made:
    """``module`` made with ``options`` and the ``flags`` of :func:`flag_options`.

    Its errors name the flags, also those in ``names``, by argument.
    """
    names = {**names, **{argument: flag(field) for field, argument in flags.items()}}
    try:
        made = module(**options, **flag_options(cfg, flags))
    except ArgumentError as error:
        name, *said = error.args
        raise ArgumentError(names.get(name, name), *said) from error
    if isinstance(made, NamedArguments):
        made.argument_names = names
    return made


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
    """What a module consists of, for one without parameters of its own."""
    return [name for name, _ in module.named_children()]
