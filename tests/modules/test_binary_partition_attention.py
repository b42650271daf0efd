"""Properties of BP-Transformer's module beside the contract of every attention."""

import pytest
import torch

from fairseq_luna.modules import BinaryPartitionAttention, SoftmaxAttention
from fairseq_luna.ops.binary_partition_attention import binary_partition_attention_reference
from fairseq_luna.usage_error import UsageError
from numeric import scattered_padding, sequences

CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])


@CAUSAL
def test_it_is_the_formula(causal):
    module, [x] = (
        BinaryPartitionAttention(embed_dim=8, num_heads=2, nodes=2, causal=causal).double(),
        sequences((40, 3, 8)),
    )
    torch.nn.init.normal_(module.span_query)
    mask = scattered_padding(3, 40)
    inputs = [
        projection(x).unflatten(2, (2, 4)).permute(1, 2, 0, 3)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    ]
    parameters = module.span_query, module.own_position, module.positions
    y = binary_partition_attention_reference(*inputs, *parameters, padding=mask, causal=causal)
    expected = module.out_proj(y.permute(2, 0, 1, 3).flatten(2))
    torch.testing.assert_close(module(x, padding_mask=mask), expected)


@CAUSAL
def test_with_parameters_at_zero_a_short_sentence_is_softmax_attention(causal):
    """So a converted transformer starts where it was, for sentences within one level."""
    options = {"embed_dim": 8, "num_heads": 2, "causal": causal}
    softmax, module = SoftmaxAttention(**options), BinaryPartitionAttention(nodes=11, **options)
    missing = module.load_state_dict(softmax.state_dict(), strict=False).missing_keys
    assert set(missing) == module.conversion_rules.keys()
    with torch.no_grad():
        for name in missing:
            module.get_parameter(name).zero_()
    [x] = sequences((12, 2, 8), dtype=torch.float32)
    torch.testing.assert_close(module(x), softmax(x))


def test_no_nodes_are_refused():
    with pytest.raises(UsageError, match="nodes 0"):
        BinaryPartitionAttention(embed_dim=8, num_heads=2, nodes=0)
