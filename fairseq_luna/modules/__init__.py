"""Attention modules: projections and decoding state around the functions of ``fairseq_luna.ops``."""

from .adaptive_span import AdaptiveSpanAttention
from .attention_pooling import AttentionPooling
from .binary_partition_attention import BinaryPartitionAttention
from .block_attention import BlockAttention, BlockCausalAttention
from .external_attention import ExternalAttention
from .fastformer_attention import FastformerAttention
from .gated_attention import GatedAttention
from .gated_delta import GatedDeltaAttention
from .gated_rfa import GatedRfaAttention
from .kernel_attention import KernelAttention, KernelCrossAttention
from .linformer_attention import LinformerAttention, LinformerCrossAttention
from .luna_attention import LunaAttention
from .luna_causal_attention import LunaCausalAttention
from .nystrom_attention import NystromAttention
from .pattern_attention import (
    BigBirdAttention,
    LongformerAttention,
    PatternAttention,
    TopKCrossAttention,
)
from .reformer_attention import ReformerAttention
from .retention import RetentionAttention
from .routing_attention import RoutingAttention
from .softmax_attention import SoftmaxAttention, SoftmaxCrossAttention
from .ssru import SSRU
from .star_attention import StarAttention
from .state_space import StateSpaceAttention
from .synthesizer_attention import SynthesizerAttention
from .transformer_xl_attention import TransformerXLAttention

__all__ = [
    "SSRU",
    "AdaptiveSpanAttention",
    "AttentionPooling",
    "BigBirdAttention",
    "BinaryPartitionAttention",
    "BlockAttention",
    "BlockCausalAttention",
    "ExternalAttention",
    "FastformerAttention",
    "GatedAttention",
    "GatedDeltaAttention",
    "GatedRfaAttention",
    "KernelAttention",
    "KernelCrossAttention",
    "LinformerAttention",
    "LinformerCrossAttention",
    "LongformerAttention",
    "LunaAttention",
    "LunaCausalAttention",
    "NystromAttention",
    "PatternAttention",
    "ReformerAttention",
    "RetentionAttention",
    "RoutingAttention",
    "SoftmaxAttention",
    "SoftmaxCrossAttention",
    "StarAttention",
    "StateSpaceAttention",
    "SynthesizerAttention",
    "TopKCrossAttention",
    "TransformerXLAttention",
]
