"""Declarations of attentions: plain data that stands beside each attention and that the rest of the project reads.

A module of this package that defines attentions has ``ATTENTIONS``, a tuple of :class:`Attention`. From these come the
names, flags and refusals of ``--arch mixed_base``, ``docs/flags.md``, ``docs/differences.md``, the facts in the table
of ``docs/attentions.md``, and the cases of the contract tests. Nothing here needs fairseq.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..published import Published

# The places of a model that have an attention; "source" is the decoder's cross-attention.
PLACES = ("encoder", "decoder", "source")


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A command-line flag of an attention, and the constructor argument that it sets.

    Several attentions may declare a flag of the same name, each with its own help and default; see :func:`merged`.

    Args:
        name: the config field; ``attention_window`` is ``--attention-window``.
        argument: the constructor argument.
        help: the meaning for this attention, without its name and its default.
        kind: int, float, bool or str; a str flag has ``choices``.
        default: the constructor's default; None if it depends on other arguments, and ``default_text`` describes it.
        minimum: the least value of a number.
        choices: the values of a str flag.
        places: where the attention reads the flag.
    """

    name: str
    argument: str
    help: str
    default: Any
    kind: type = int
    default_text: str = ""
    minimum: float | None = None
    choices: tuple[str, ...] = ()
    places: tuple[str, ...] = PLACES


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties that tables show and that decide which tests apply.

    Args:
        training_time: order of time and memory in training, for n steps; notation of ``docs/attentions.md``.
        decoder_state: size of the state between two steps of generation; "" if there is no causal form.
        sees_every_step: each step sees all steps, or in a decoder all earlier ones.
        quadratic: time or memory grows with the square of the length.
        state_grows: each step of generation adds to the state, without a bound.
        continuous: a rounding error changes the result by as little. Otherwise it may change which steps are seen.
        is_matrix: the output is a matrix of weights times the projected values of the steps.
    """

    training_time: str
    decoder_state: str = "constant"
    sees_every_step: bool = True
    quadratic: bool = False
    state_grows: bool = False
    continuous: bool = True
    is_matrix: bool = True


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The declaration of one attention.

    Args:
        name: for the flags of ``--arch mixed_base`` and all tables.
        published: the layer that it follows, and the differences.
        paper: address of the paper, or of the page that has the formula.
        encoder, decoder, source: the constructor for this place, or the reason why the attention cannot stand there.
        flags: its command-line flags.
        traits: see :class:`Traits`.
        has_heads: the constructor takes ``num_heads``.
        has_max_positions: the constructor takes ``max_positions``, the longest sequence that it can read.
        unaligned: the reason why the weights of the cross-attention cannot be trained as an alignment, or "".
        architecture: the ``--arch`` that has it, if it is not chosen by name.
    """

    name: str
    published: Published
    paper: str
    encoder: Callable[..., nn.Module] | str
    decoder: Callable[..., nn.Module] | str
    source: Callable[..., nn.Module] | str
    traits: Traits
    flags: tuple[Flag, ...] = ()
    has_heads: bool = True
    has_max_positions: bool = False
    unaligned: str = ""
    architecture: str = ""

    @property
    def title(self) -> str:
        """The name in tables."""
        return f"{self.name} (`--arch {self.architecture}`)" if self.architecture else self.name

    @property
    def places(self) -> tuple[str, ...]:
        """The places where it can stand."""
        return tuple(place for place in PLACES if callable(getattr(self, place)))

    def constructor(self, place: str) -> Callable[..., nn.Module]:
        """The constructor for one of its :attr:`places`."""
        constructor: Callable[..., nn.Module] = getattr(self, place)
        return constructor

    def refusal(self, place: str) -> str | None:
        """The reason why it cannot stand in ``place``, or None if it can."""
        return None if place in self.places else str(getattr(self, place))

    def arguments(self, place: str) -> dict[str, str]:
        """The config fields that it reads in ``place``, and the constructor arguments that they become."""
        argument_names = {flag.name: flag.argument for flag in self.flags if place in flag.places}
        if self.has_max_positions:
            argument_names["max_target_positions" if place == "decoder" else "max_source_positions"] = "max_positions"
        return argument_names


@functools.cache
def declared_attentions() -> Mapping[str, Attention]:
    """Every attention that a module of this package declares, by name, in alphabetical order."""
    package = __name__.rpartition(".")[0]
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    imported = [importlib.import_module(f"{package}.{info.name}") for info in modules]
    attentions: list[Attention] = [each for module in imported for each in getattr(module, "ATTENTIONS", ())]
    return {each.name: each for each in sorted(attentions, key=lambda each: each.name)}


def merged_flags(attentions: Iterable[Attention]) -> dict[str, Flag]:
    """The flags of several ``attentions``, by name: one for all that declare it.

    Its help names the attentions. Its default is the common one; if theirs differ it is None, for "the default of the
    attention", and the help gives each.
    """
    readers: dict[str, list[tuple[str, Flag]]] = {}
    for attention in attentions:
        for flag in attention.flags:
            readers.setdefault(flag.name, []).append((attention.name, flag))
    return {name: merged(declared) for name, declared in readers.items()}


def merged(readers: list[tuple[str, Flag]]) -> Flag:
    """One flag for all ``readers``, names of attentions with the flag as each declares it.

    Raises:
        ValueError: they declare it with different kinds of values.
    """
    first = readers[0][1]
    for name, flag in readers:
        if (flag.kind, flag.choices, flag.minimum) != (first.kind, first.choices, first.minimum):
            raise ValueError(f"{readers[0][0]} and {name} declare {flag.name} with different values")
    common = all(flag.default == first.default for _, flag in readers) and not first.default_text
    texts: dict[str, list[str]] = {}
    for name, flag in readers:
        default = "" if common else f" (default: {flag.default_text or flag.default})"
        texts.setdefault(flag.help + default, []).append(name)
    text = "; ".join(f"{', '.join(names)}: {help_text}" for help_text, names in texts.items())
    return replace(first, help=text, default=first.default if common else None)
