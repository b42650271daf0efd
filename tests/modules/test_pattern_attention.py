"""What attention to a pattern has beside what tests/models/mixed asks of every attention."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.modules import (
    BigBirdAttention,
    LongformerAttention,
    PatternAttention,
    PatternCausalAttention,
    SoftmaxAttention,
    TopKSourceAttention,
)
from fairseq_luna.modules.pattern_projections import local, sparse, topk
from fairseq_luna.ops.pattern_attention import RandomBlocks, naive
from numeric import mixed_padding, scattered_padding, sequences

SIZE, HEADS, SOURCE_SIZE = 16, 4, 12
PATTERNS = {
    "local": {"pattern": local, "window": 5},
    "topk": {"pattern": topk, "count": 3},
    "sparse": {"pattern": sparse, "stride": 64},
}
NAMES = pytest.mark.parametrize("name", PATTERNS)
KINDS = {"encoder": PatternAttention, "decoder": PatternCausalAttention, "source": TopKSourceAttention}
PLACES = pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name in PATTERNS for place in KINDS if place != "source" or name == "topk"]
)


def build(name, place, **options):
    torch.manual_seed(0)
    if place == "source":
        options = {"source_dim": SOURCE_SIZE, **options}
    return KINDS[place](embed_dim=SIZE, num_heads=HEADS, **PATTERNS[name], **options).double().eval()


def call(module, x, source, **options):
    if isinstance(module, TopKSourceAttention):
        return module(x, source, **options)[0]
    return module(x, **options)


@NAMES
def test_seeing_all_is_softmax_attention_with_the_same_parameters(name):
    [x] = sequences((20, 2, SIZE))
    torch.manual_seed(0)
    softmax = SoftmaxAttention(embed_dim=SIZE, num_heads=HEADS).double().eval()
    module = PatternAttention(
        embed_dim=SIZE,
        num_heads=HEADS,
        pattern=PATTERNS[name]["pattern"],
        **{"local": {"window": 20}, "topk": {"count": 20}, "sparse": {"stride": 20}}[name],
    ).double()
    module.load_state_dict(softmax.state_dict())
    mask = scattered_padding(2, 20)
    torch.testing.assert_close(module(x, padding_mask=mask)[~mask.t()], softmax(x, padding_mask=mask)[~mask.t()])


@torch.no_grad()
def test_the_first_word_of_longformer_sees_all_with_projections_of_its_own():
    [x] = sequences((70, 3, SIZE))
    torch.manual_seed(0)
    module = LongformerAttention(embed_dim=SIZE, num_heads=HEADS, window=5, dilation=2).double()
    mask = mixed_padding(70)
    out = module(x, padding_mask=mask)
    for row in range(3):
        real = x[~mask[row], row : row + 1]
        q, k, v, *others = (
            module.heads_of(getattr(module, f"{kind}{which}_proj"), real) for kind in ("", "first_") for which in "qkv"
        )
        distance = (torch.arange(len(real))[:, None] - torch.arange(len(real))).abs()
        seen = (distance <= 10) & (distance % 2 == 0)
        seen[:, 0] = True
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        expected[:, :, :1] = F.scaled_dot_product_attention(others[0][:, :, :1], *others[1:])
        torch.testing.assert_close(out[~mask[row], row], module.output(expected)[:, 0])
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
    expected = naive.pattern_attention(*one.queries_keys_values(x), pattern)
    torch.testing.assert_close(one(x), one.output(expected))


@pytest.mark.parametrize(
    ("name", "kept"),
    [("local", lambda t: min(t, 5)), ("sparse", lambda t: 8 * ((t - 1) // 64) + (t - 1) % 64 + 1)],
    ids=["local", "sparse"],
)
def test_the_state_has_only_what_later_steps_see(name, kept):
    """Of local attention it stops growing; of sparse attention it has 8 steps of a block, whatever its size."""
    module, state, sizes = build(name, "decoder"), {}, []
    for x in sequences((200, 3, SIZE))[0]:
        module(x[None], incremental_state=state)
        sizes.append(sum(tensor.numel() for tensor in module.load_state(state).values()))
    assert sizes == [3 * 2 * kept(t) * SIZE for t in range(1, 201)]


@torch.no_grad()
def test_beams_share_the_source_and_follow_their_sentences():
    module = build("topk", "source")
    x, source = sequences((5, 6, SIZE), (20, 3, SOURCE_SIZE))
    mask, rows = scattered_padding(3, 20), torch.arange(3).repeat_interleave(2)
    expected, weights = module(x, source[:, rows], source_padding_mask=mask[rows], need_weights=True)
    state, order = {}, torch.arange(6)
    for t in range(5):
        if t == 2:  # beams of a sentence are swapped; then the second sentence is finished
            order = torch.tensor([1, 0, 2, 2, 4, 5])
            module.reorder_incremental_state(state, order)
        if t == 4:
            left = torch.tensor([0, 1, 4, 5])
            module.reorder_incremental_state(state, left)
            order = order[left]
        out, found = module(
            x[t : t + 1, order],
            source if t == 0 else None,
            source_padding_mask=mask,
            incremental_state=state,
            need_weights=True,
        )
        torch.testing.assert_close((out[0], found), (expected[t, order], weights[:, order, t : t + 1]))
    assert len(module.load_constants(state)["k"]) == 2


@PLACES
def test_dropout_and_noise_are_for_training(name, place):
    args = sequences((12, 2, SIZE), (9, 2, SOURCE_SIZE))
    expected = call(build(name, place), *args)
    for options in ({"dropout": 0.5}, {"q_noise": 0.5, "qn_block_size": 4}):
        module = build(name, place, **options)
        torch.testing.assert_close(call(module, *args), expected)
        module.train()
        assert not call(module, *args).equal(call(module, *args))


@PLACES
def test_data_decides_no_branch(name, place):
    """Meta tensors have no data: reading a number from one is an error. On a GPU it would wait for the device."""
    module = build(name, place, dropout=0.1).to("meta").train()
    x, source = (tensor.detach().to("meta") for tensor in sequences((70, 2, SIZE), (70, 2, SOURCE_SIZE)))
    given = {("source_" if place == "source" else "") + "padding_mask": scattered_padding(2, 70).to("meta")}
    call(module, x, source, **given).sum().backward()
    assert {p.grad.device.type for p in module.parameters()} == {"meta"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pattern": local, "window": 0}, "window 0: must be 1 or more"),
        ({"pattern": topk, "count": 0}, "count 0: must be 1 or more"),
        ({"pattern": sparse, "stride": 0}, "stride 0: must be 1 or more"),
        ({"pattern": topk, "num_heads": 3}, "num_heads 3: must be 1 or more and divide embed_dim 16"),
    ],
    ids=["window", "topk", "chunk", "heads"],
)
def test_bad_values_are_refused(options, said):
    with pytest.raises(ValueError) as refused:
        PatternAttention(**{"embed_dim": SIZE, "num_heads": HEADS, **options})
    assert str(refused.value) == said
