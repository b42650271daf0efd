"""Properties of attention to a pattern beside the contract of every attention."""

import torch
import torch.nn.functional as F

from fairseq_luna.modules import BigBirdAttention, LongformerAttention
from fairseq_luna.ops.pattern_attention import RandomBlocks, pattern_attention_reference
from numeric import mixed_padding, sequences

SIZE, HEADS = 16, 4


def build(kind, **options):
    torch.manual_seed(0)
    return kind(embed_dim=SIZE, num_heads=HEADS, **options).double().eval()


@torch.no_grad()
def test_the_first_word_of_longformer_sees_all_with_projections_of_its_own():
    [x], mask = sequences((70, 3, SIZE)), mixed_padding(70)
    module = build(LongformerAttention, window=5, dilation=2)
    out = module(x, padding_mask=mask)
    for row in range(3):
        real = x[~mask[row], row : row + 1]
        q, k, v, *others = (
            module.project_heads(getattr(module, f"{kind}{which}_proj"), real)
            for kind in ("", "first_")
            for which in "qkv"
        )
        distance = (torch.arange(len(real))[:, None] - torch.arange(len(real))).abs()
        seen = (distance <= 10) & (distance % 2 == 0)
        seen[:, 0] = True
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        expected[:, :, :1] = F.scaled_dot_product_attention(others[0][:, :, :1], *others[1:])
        torch.testing.assert_close(out[~mask[row], row], module.project_output(expected)[:, 0])
        torch.testing.assert_close(module(real)[:, 0], out[~mask[row], row])


@torch.no_grad()
def test_the_random_blocks_of_bigbird_are_those_of_its_checkpoint():
    [x] = sequences((100, 2, SIZE))
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        made.append(BigBirdAttention(embed_dim=SIZE, num_heads=HEADS, block_size=4).double())
    one, other = made
    parameters = {name: tensor for name, tensor in one.state_dict().items() if name != "seeds"}
    other.load_state_dict(parameters, strict=False)
    assert not other(x).equal(one(x))
    other.load_state_dict(one.state_dict())
    assert other(x).equal(one(x)) and one(x).equal(one(x))
    pattern = RandomBlocks(4, 3, seeds=one.seeds)
    expected = pattern_attention_reference(*one.queries_keys_values(x), pattern)
    torch.testing.assert_close(one(x), one.project_output(expected))
