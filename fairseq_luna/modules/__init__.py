"""Attention modules: projections and incremental state around the functions of ``fairseq_luna.ops``."""

from .adaptive_span import AdaptiveSpanAttention, AdaptiveSpanCausalAttention
from .attention_pooling import AttentionPooling
from .block_attention import BlockAttention, BlockCausalAttention
from .external_attention import ExternalAttention, ExternalCausalAttention
from .fastformer_attention import FastformerAttention, FastformerCausalAttention
from .gated_attention import GatedAttention, GatedCausalAttention
from .gated_delta import GatedDeltaAttention, GatedDeltaCausalAttention
from .gated_rfa import GatedRfaAttention, GatedRfaCausalAttention
from .kernel_attention import KernelAttention, KernelCausalAttention, KernelSourceAttention
from .linformer_attention import LinformerAttention, LinformerSourceAttention
from .luna_attention import LunaAttention
from .luna_causal_attention import LunaCausalAttention
from .nystrom_attention import NystromAttention
from .pattern_attention import (
    BigBirdAttention,
    LongformerAttention,
    PatternAttention,
    PatternCausalAttention,
    TopKSourceAttention,
)
from .reformer_attention import ReformerAttention
from .retention import RetentionAttention, RetentionCausalAttention
from .softmax_attention import SoftmaxAttention, SoftmaxCausalAttention, SoftmaxSourceAttention
from .ssru import SSRU
from .state_space import StateSpaceAttention, StateSpaceCausalAttention
from .synthesizer_attention import SynthesizerAttention, SynthesizerCausalAttention
from .transformer_xl_attention import TransformerXLAttention, TransformerXLCausalAttention

__all__ = [
    "SSRU",
    "AdaptiveSpanAttention",
    "AdaptiveSpanCausalAttention",
    "AttentionPooling",
    "BigBirdAttention",
    "BlockAttention",
    "BlockCausalAttention",
    "ExternalAttention",
    "ExternalCausalAttention",
    "FastformerAttention",
    "FastformerCausalAttention",
    "GatedAttention",
    "GatedCausalAttention",
    "GatedDeltaAttention",
    "GatedDeltaCausalAttention",
    "GatedRfaAttention",
    "GatedRfaCausalAttention",
    "KernelAttention",
    "KernelCausalAttention",
    "KernelSourceAttention",
    "LinformerAttention",
    "LinformerSourceAttention",
    "LongformerAttention",
    "LunaAttention",
    "LunaCausalAttention",
    "NystromAttention",
    "PatternAttention",
    "PatternCausalAttention",
    "ReformerAttention",
    "RetentionAttention",
    "RetentionCausalAttention",
    "SoftmaxAttention",
    "SoftmaxCausalAttention",
    "SoftmaxSourceAttention",
    "StateSpaceAttention",
    "StateSpaceCausalAttention",
    "SynthesizerAttention",
    "SynthesizerCausalAttention",
    "TopKSourceAttention",
    "TransformerXLAttention",
    "TransformerXLCausalAttention",
]
