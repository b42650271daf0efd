"""Attention modules: projections and incremental state around the functions of ``fairseq_luna.ops``."""

from .block_attention import BlockAttention
from .block_causal_attention import BlockCausalAttention
from .fastformer_attention import FastformerAttention
from .fastformer_causal_attention import FastformerCausalAttention
from .kernel_attention import KernelAttention, KernelCausalAttention, KernelSourceAttention
from .luna_attention import LunaAttention
from .luna_causal_attention import LunaCausalAttention
from .pattern_attention import PatternAttention, PatternCausalAttention, TopKSourceAttention
from .softmax_attention import SoftmaxAttention, SoftmaxCausalAttention, SoftmaxSourceAttention

__all__ = [
    "BlockAttention",
    "BlockCausalAttention",
    "FastformerAttention",
    "FastformerCausalAttention",
    "KernelAttention",
    "KernelCausalAttention",
    "KernelSourceAttention",
    "LunaAttention",
    "LunaCausalAttention",
    "PatternAttention",
    "PatternCausalAttention",
    "SoftmaxAttention",
    "SoftmaxCausalAttention",
    "SoftmaxSourceAttention",
    "TopKSourceAttention",
]
