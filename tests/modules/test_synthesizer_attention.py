"""Properties of synthesizers beside the contract of every attention."""

from functools import partial

import pytest
import torch

from every_attention import Kept, call
from fairseq_luna.modules import SynthesizerAttention
from fairseq_luna.modules.decoding_state import flatten_state
from fairseq_luna.modules.synthesizer_attention import (
    DenseScores,
    FactorizedDenseScores,
    FactorizedRandomScores,
    RandomScores,
)
from fairseq_luna.usage_error import UsageError
from numeric import mixed_padding, sequences

SIZE, HEADS, LONGEST = 8, 2, 42
CAUSAL = partial(SynthesizerAttention, causal=True)
SCORES = [DenseScores, RandomScores, FactorizedDenseScores, FactorizedRandomScores]
EVERY_KIND = pytest.mark.parametrize("scores", SCORES, ids=lambda kind: kind.__name__)


def build(scores, kind=SynthesizerAttention, **options):
    torch.manual_seed(0)
    options = {"embed_dim": SIZE, "num_heads": HEADS, "max_positions": LONGEST, **options}
    return kind(scores=scores, **options).double().eval()


def of_head(linear, head):
    """The rows of a linear map that belong to a head: ``(size, C)`` and ``(size,)``."""
    return linear.weight.unflatten(0, (HEADS, -1))[head], linear.bias.unflatten(0, (HEADS, -1))[head]


def score(module, head, x, i, p):
    """Published score of the word ``x (C,)`` at position i for position p."""
    scores = module.scores
    if isinstance(scores, RandomScores):
        return scores.matrix[head, i, p]
    if isinstance(scores, FactorizedRandomScores):
        return scores.left[head, i] @ scores.right[head, :, p]
    if isinstance(scores, DenseScores):
        weight, bias = of_head(scores.hidden, head)
        return (weight @ x + bias).relu() @ scores.positions[head, p]
    (block, block_bias), (place, place_bias) = (of_head(part, head) for part in (scores.of_block, scores.of_place))
    b = len(place)
    return (block[p // b] @ x + block_bias[p // b]) * (place[p % b] @ x + place_bias[p % b])


@EVERY_KIND
@torch.no_grad()
@pytest.mark.parametrize("kind", [SynthesizerAttention, CAUSAL], ids=["encoder", "decoder"])
def test_equals_the_published_formulas_word_by_word(scores, kind):
    module, mask, [x] = build(scores, kind), mixed_padding(20), sequences((20, 3, SIZE))
    out = module(x, padding_mask=mask)
    for row in range(3):
        words = x[~mask[row], row]
        y = torch.zeros(len(words), HEADS, SIZE // HEADS, dtype=x.dtype)
        for head in range(HEADS):
            weight, bias = of_head(module.v_proj, head)
            values = words @ weight.t() + bias
            for i, word in enumerate(words):
                seen = i + 1 if kind is CAUSAL else len(words)
                weights = torch.stack([score(module, head, word, i, p) for p in range(seen)]).softmax(0)
                y[i, head] = weights @ values[:seen]
        torch.testing.assert_close(out[~mask[row], row], module.out_proj(y.flatten(1)))


@torch.no_grad()
@pytest.mark.parametrize("longest", [42, 1024], ids=["of 6 and 7", "of 32 and 32"])
def test_the_two_factors_give_every_position_a_score_of_its_own(longest):
    module, [x] = build(FactorizedDenseScores, max_positions=longest), sequences((1, 1, SIZE))
    scores = module.scores.rows(x, torch.zeros(1, 1, dtype=torch.int64), longest)
    assert [row.unique().numel() for row in scores[0, :, 0]] == [longest] * HEADS


@EVERY_KIND
def test_a_longer_sequence_is_refused(scores):
    said = r"^max_positions 42: a synthesizer reads at most this many tokens, and a sentence has 43; [^\n]*$"
    [x] = sequences((LONGEST + 1, 1, SIZE))
    with pytest.raises(UsageError, match=said):
        build(scores)(x)
    module, kept = build(scores, CAUSAL), Kept()
    with pytest.raises(UsageError, match=said):
        module(x)
    call(module, "decoder", x[:LONGEST], kept=kept)
    with pytest.raises(UsageError, match=said):
        call(module, "decoder", x[LONGEST:], kept=kept)


@EVERY_KIND
def test_the_state_is_the_values(scores):
    module, kept, [x] = build(scores, CAUSAL), Kept(), sequences((5, 3, SIZE))
    call(module, "decoder", x, kept=kept)
    assert {name: tensor.shape for name, tensor in flatten_state(kept.value).items()} == {
        "v": (3, HEADS, 5, SIZE // HEADS)
    }


def test_the_parameters_of_a_matrix_of_positions():
    sizes = {kind: sum(p.numel() for p in build(kind).scores.parameters()) for kind in SCORES}
    hidden = SIZE * SIZE + SIZE
    assert sizes == {
        DenseScores: hidden + SIZE * LONGEST,
        RandomScores: HEADS * LONGEST**2,
        FactorizedDenseScores: HEADS * (6 + 7) * (SIZE + 1),
        FactorizedRandomScores: HEADS * 2 * 8 * LONGEST,
    }
