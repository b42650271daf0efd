"""Options that an attention refuses: one line that names the option, its value and what to do.

Those that are flags of models too: tests/models/test_refusals.py.
"""

import pytest

from fairseq_luna import modules
from fairseq_luna.modules import feature_maps, short_convolution
from fairseq_luna.modules.pattern_attention import topk
from fairseq_luna.modules.synthesizer_attention import RandomScores
from fairseq_luna.usage_error import UsageError

ODD = "must be an odd number of tokens, such as 5"
MIDDLE = "must be odd, such as 33: its middle is the step itself"
HEADS = "num_heads 3: must be 1 or more and divide embed_dim 16"
ONE = "must be 1 or more"
REDRAW = "redraw_features -1: must be 1 or more updates; or 0: never"
ONE_DIRECTION = "num_heads 1: gated-delta needs 2 or more in an encoder: half of them read from the end"
PAIRS = "embed_dim 6: must be a multiple of 4: a head turns pairs of channels"
REFUSED = [
    (modules.BlockAttention, {"unordered": "max"}, "unordered max: choose none, mean or sum"),
    (modules.BlockAttention, {"num_heads": 3}, HEADS),
    (modules.ExternalAttention, {"num_heads": 3}, HEADS),
    (modules.FastformerAttention, {"residual": "key"}, "residual key: choose query or global-query"),
    (modules.FastformerAttention, {"share": "all"}, "share all: choose none, query-value or query-key-value"),
    (modules.FastformerAttention, {"num_heads": 3}, HEADS),
    (modules.FastformerAttention, {"num_heads": 0}, "num_heads 0: must be 1 or more and divide embed_dim 16"),
    (modules.GatedDeltaAttention, {"num_heads": 1}, ONE_DIRECTION),
    (modules.KernelAttention, {"feature_map": feature_maps.EluFeatures, "num_heads": 3}, HEADS),
    (modules.LinformerAttention, {"num_heads": 3}, HEADS),
    (modules.LinformerAttention, {"num_slots": 0}, f"num_slots 0: {ONE}"),
    (modules.LinformerAttention, {"share": "heads"}, "share heads: choose none, kv or layers"),
    (modules.LunaAttention, {"num_heads": 3, "num_packed_heads": 4}, HEADS),
    (modules.LunaAttention, {"num_packed_heads": 5}, "num_packed_heads 5: must be 1 or more and divide embed_dim 16"),
    (modules.LunaCausalAttention, {"num_heads": 3}, HEADS),
    (modules.LunaCausalAttention, {"activation": "relu"}, "activation relu: choose softplus or elu"),
    (modules.LunaCausalAttention, {"kernel": "cuda"}, "kernel cuda: choose torch or triton"),
    (modules.LunaCausalAttention, {"kernel_size": 2}, f"kernel_size 2: {ODD}; or 0: no convolution"),
    (modules.NystromAttention, {"num_heads": 3}, HEADS),
    (modules.NystromAttention, {"num_slots": 0}, f"num_slots 0: {ONE}"),
    (modules.NystromAttention, {"kernel_size": 32}, f"kernel_size 32: {MIDDLE}"),
    (modules.PatternAttention, {"pattern": topk, "num_heads": 3}, HEADS),
    (modules.ReformerAttention, {"num_heads": 3}, HEADS),
    (modules.ReformerAttention, {"chunk_size": 0}, f"chunk_size 0: {ONE}"),
    (modules.ReformerAttention, {"redraw_features": -1}, REDRAW),
    (modules.RetentionAttention, {"embed_dim": 6, "num_heads": 2}, PAIRS),
    (modules.SynthesizerAttention, {"scores": RandomScores, "num_heads": 3}, HEADS),
    (feature_maps.PositiveFeatures, {"num_features": 0}, "num_features 0: must be 1 or more; leave it out for 16"),
    (short_convolution.ShortConvolution, {"kernel_size": -1}, f"kernel_size -1: {ODD}; or 0: no convolution"),
    (short_convolution.ShortConvolution, {"kernel_size": 0}, f"kernel_size 0: {ODD}; or 0: no convolution"),
    (short_convolution.ShortConvolution, {"kernel_size": 4}, f"kernel_size 4: {ODD}; or 0: no convolution"),
]
SIZES = {
    modules.LunaAttention: {"embed_dim": 16, "num_heads": 4, "num_packed_heads": 4},
    feature_maps.PositiveFeatures: {"num_heads": 4, "head_size": 4},
    short_convolution.ShortConvolution: {"embed_dim": 16},
}


@pytest.mark.parametrize(("kind", "options", "said"), REFUSED, ids=[said.split(":")[0] for *_, said in REFUSED])
def test_bad_values_are_refused(kind, options, said):
    with pytest.raises(UsageError) as refused:
        kind(**{**SIZES.get(kind, {"embed_dim": 16, "num_heads": 4}), **options})
    assert str(refused.value) == said
