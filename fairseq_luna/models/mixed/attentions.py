"""The table of attentions: parser, models, refusals, scripts and tests read it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from ... import modules
from ...modules import feature_maps
from ...modules import synthesizer_attention as synthesizer
from ...modules.linformer_attention import LinformerProjections
from ...modules.pattern_attention import local, longformer, sparse, topk
from ...usage_error import UsageError
from .. import block, fastformer
from ..shared.attentions import KERNEL, BuildAttention, Factory, Sharing, with_flags
from ..shared.checks import flag

# The places of a model that have an attention, and the field of the config that names it.
PLACES = {
    "encoder": "encoder_self_attention",
    "decoder": "decoder_self_attention",
    "source": "source_attention",
}


class Attention(NamedTuple):
    """What builds an attention in each place, or why it cannot stand there."""

    encoder: Factory | str
    decoder: Factory | str
    source: Factory | str

    def factories(self) -> dict[str, Factory]:
        """By place, without the places where it cannot stand."""
        return {place: found for place, found in self._asdict().items() if isinstance(found, Factory)}

    def fields(self, name: str) -> dict[str, str]:
        """The fields of the config with which this attention, ``name``, stands wherever it can."""
        return {PLACES[place]: name for place in self.factories()}


def _kernel(feature_map: type[feature_maps.FeatureMapModule], *fields: str, unaligned: str | None = None) -> Attention:
    """Kernel attention with ``feature_map``, whose arguments are called as the ``fields`` of the config."""
    places = (modules.KernelAttention, modules.KernelCausalAttention, modules.KernelSourceAttention)
    flags = {field: field for field in fields}
    return Attention(*(Factory(partial(module, feature_map=feature_map), flags, unaligned) for module in places))


def _synthesizer(scores: type[synthesizer.ScoreMap]) -> Attention:
    """Synthesizer with these scores."""
    return Attention(
        encoder=Factory(
            partial(modules.SynthesizerAttention, scores=scores), {"max_source_positions": "max_positions"}
        ),
        decoder=Factory(
            partial(modules.SynthesizerCausalAttention, scores=scores), {"max_target_positions": "max_positions"}
        ),
        source="its scores do not depend on the words that are read",
    )


def _of_one_head(module: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """``module``, which has no heads, called as those that have."""
    return lambda *, num_heads, **options: module(**options)


WINDOW = {"attention_window": "window"}
SPAN = {**WINDOW, "span_ramp": "ramp", "span_penalty": "penalty"}
LONGFORMER = {**WINDOW, "attention_dilation": "dilation"}
STRIDE = {"attention_chunk": "stride"}
REFORMER = {"num_hashes": "num_hashes", "attention_chunk": "chunk_size", "redraw_features": "redraw_features"}
TOPK = {"attention_topk": "count"}
CHUNK = {"attention_chunk": "chunk_size"}
STATE = {"state_size": "state_size"}
NO_DISTANCE = "there is no distance between a target word and a source word"
NEGATIVE = "its weights may be negative"
FEATURES = {"num_features": "num_features"}
SLOTS = {"num_slots": "num_slots"}
LINFORMER_FLAGS = {**SLOTS, "linformer_share": "share", "max_source_positions": "max_positions"}

ATTENTIONS: dict[str, Attention] = {
    "softmax": Attention(
        encoder=Factory(modules.SoftmaxAttention),
        decoder=Factory(modules.SoftmaxCausalAttention),
        source=Factory(modules.SoftmaxSourceAttention),
    ),
    "fastformer": Attention(
        encoder=Factory(modules.FastformerAttention, fastformer.FLAGS),
        decoder=Factory(modules.FastformerCausalAttention, fastformer.FLAGS),
        source="its global query and key are of one sequence",
    ),
    "block": Attention(
        encoder=Factory(modules.BlockAttention, block.ENCODER_FLAGS),
        decoder=Factory(modules.BlockCausalAttention, block.DECODER_FLAGS),
        source="its blocks are of one sequence",
    ),
    "linear": _kernel(feature_maps.EluFeatures),
    "performer": _kernel(feature_maps.PositiveFeatures, "num_features", "redraw_features"),
    "rfa": _kernel(feature_maps.FourierFeatures, "num_features", unaligned=NEGATIVE),
    "efficient": _kernel(feature_maps.SoftmaxFeatures),
    "hedgehog": _kernel(feature_maps.HedgehogFeatures),
    "local": Attention(
        encoder=Factory(partial(modules.PatternAttention, pattern=local), WINDOW),
        decoder=Factory(partial(modules.PatternCausalAttention, pattern=local), WINDOW),
        source=NO_DISTANCE,
    ),
    "adaptive-span": Attention(
        encoder=Factory(modules.AdaptiveSpanAttention, SPAN),
        decoder=Factory(modules.AdaptiveSpanCausalAttention, SPAN),
        source=NO_DISTANCE,
    ),
    "topk": Attention(
        encoder=Factory(partial(modules.PatternAttention, pattern=topk), TOPK),
        decoder=Factory(partial(modules.PatternCausalAttention, pattern=topk), TOPK),
        source=Factory(partial(modules.TopKSourceAttention, pattern=topk), TOPK, "most of its weights are 0"),
    ),
    "sparse": Attention(
        encoder=Factory(partial(modules.PatternAttention, pattern=sparse), STRIDE),
        decoder=Factory(partial(modules.PatternCausalAttention, pattern=sparse), STRIDE),
        source=NO_DISTANCE,
    ),
    "longformer": Attention(
        encoder=Factory(modules.LongformerAttention, LONGFORMER),
        decoder=Factory(partial(modules.PatternCausalAttention, pattern=longformer), LONGFORMER),
        source=NO_DISTANCE,
    ),
    "bigbird": Attention(
        encoder=Factory(modules.BigBirdAttention, {"attention_chunk": "block_size"}),
        decoder="its blocks see later words",
        source=NO_DISTANCE,
    ),
    "linformer": Attention(
        encoder=Factory(modules.LinformerAttention, LINFORMER_FLAGS),
        decoder="its slots are sums over all positions, later ones too",
        source=Factory(modules.LinformerSourceAttention, LINFORMER_FLAGS, NEGATIVE),
    ),
    "external": Attention(
        encoder=Factory(modules.ExternalAttention, SLOTS),
        decoder=Factory(modules.ExternalCausalAttention, SLOTS),
        source="its slots are learned: it reads no source",
    ),
    "nystrom": Attention(
        encoder=Factory(modules.NystromAttention, SLOTS),
        decoder="its landmarks are means of all positions, later ones too",
        source="its landmarks are of one sequence",
    ),
    "synthesizer-dense": _synthesizer(synthesizer.DenseScores),
    "synthesizer-random": _synthesizer(synthesizer.RandomScores),
    "synthesizer-factorized-dense": _synthesizer(synthesizer.FactorizedDenseScores),
    "synthesizer-factorized-random": _synthesizer(synthesizer.FactorizedRandomScores),
    "reformer": Attention(
        encoder=Factory(modules.ReformerAttention, REFORMER),
        decoder="its steps are sorted together with later ones",
        source="its keys are its queries",
    ),
    "flash": Attention(
        encoder=Factory(_of_one_head(modules.GatedAttention), CHUNK),
        decoder=Factory(_of_one_head(modules.GatedCausalAttention), CHUNK),
        source="its chunks are of one sequence",
    ),
    "ssd": Attention(
        encoder=Factory(modules.StateSpaceAttention, STATE),
        decoder=Factory(modules.StateSpaceCausalAttention, STATE),
        source=NO_DISTANCE,
    ),
    "gated-delta": Attention(
        encoder=Factory(modules.GatedDeltaAttention),
        decoder=Factory(modules.GatedDeltaCausalAttention),
        source="its steps write into one state, in order: the source would be read word by word",
    ),
    "ssru": Attention(
        encoder="its steps see only earlier ones",
        decoder=Factory(_of_one_head(modules.SSRU)),
        source="it is a recurrence over one sequence",
    ),
    "retention": Attention(
        encoder=Factory(modules.RetentionAttention),
        decoder=Factory(modules.RetentionCausalAttention),
        source=NO_DISTANCE,
    ),
    "gated-rfa": Attention(
        encoder=Factory(modules.GatedRfaAttention, FEATURES),
        decoder=Factory(modules.GatedRfaCausalAttention, FEATURES),
        source="without its gate it is rfa",
    ),
}


def able(place: str) -> dict[str, Factory]:
    """The attentions that can stand in ``place``: their names, and what builds them."""
    found = {name: attention.factories().get(place) for name, attention in ATTENTIONS.items()}
    return {name: factory for name, factory in found.items() if factory is not None}


def factory_of(cfg: Any, place: str) -> Factory:
    """What builds the attention that the nested ``cfg`` names for ``place``.

    Raises:
        UsageError: it cannot stand there, or there is none; names those that can.
    """
    field = PLACES[place]
    name = getattr(cfg, field)
    # fairseq's parser knows the names, a config made in Python does not.
    found = getattr(ATTENTIONS[name], place) if name in ATTENTIONS else "there is no such attention"
    if isinstance(found, str):
        raise UsageError(f"{flag(field)} {name}: {found}; choose one of: {', '.join(able(place))}")
    return found


def build_attention(cfg: Any, place: str) -> nn.Module:
    """The attention of one layer; self-attentions after the convolution that ``cfg``, the nested config, asks for."""
    attention: Any = factory_of(cfg, place).build(cfg, place)
    if place != "source" and cfg.attention_kernel_size:
        with_flags(attention.convolve, cfg, KERNEL)
    return attention


def build_for_stack(place: str) -> BuildAttention:
    """:func:`build_attention` for the layers of a stack, which may share Linformer's sums."""
    return Sharing(partial(build_attention, place=place), shared_sums)


def shared_sums(attention: nn.Module) -> list[str]:
    """The names of the sums that all layers share."""
    return [
        f"{name}.key_sums".lstrip(".")
        for name, module in attention.named_modules()
        if isinstance(module, LinformerProjections) and module.share == "layers"
    ]
