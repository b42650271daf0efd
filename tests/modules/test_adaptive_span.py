"""Properties of adaptive span beside the contract of every attention."""

from functools import partial

import pytest
import torch

from every_attention import in_steps
from fairseq_luna.modules import AdaptiveSpanAttention
from fairseq_luna.usage_error import UsageError
from numeric import mixed_padding, scattered_padding, sequences
from support import CLOSE, assert_published, golden

NAMES = {"proj_query": "q_proj", "proj_key": "k_proj", "proj_val": "v_proj", "proj_out": "out_proj"}
SPAN = "attn.adaptive_span._mask.current_val"
CAUSAL = partial(AdaptiveSpanAttention, causal=True)


def build(kind=CAUSAL, **options):
    torch.manual_seed(0)
    return kind(embed_dim=16, num_heads=4, window=20, ramp=5, **options).double()


@pytest.fixture
def published():
    """The authors' numbers, our module with their parameters, and the share of our window that is one of theirs."""
    recorded = golden("adaptive_span.pt")
    window = recorded["max_span"] - 1  # the largest distance, where they count the steps with the own one
    share = recorded["max_span"] / window
    options = {"window": window, "ramp": recorded["ramp"], "penalty": recorded["loss_coefficient"], "bias": False}
    module = AdaptiveSpanAttention(
        causal=True, embed_dim=recorded["embed_dim"], num_heads=recorded["num_heads"], **options
    )
    theirs = recorded["state_dict"]
    ours = {NAMES[name.split(".")[0]] + ".weight": x for name, x in theirs.items() if name != SPAN}
    module.load_state_dict({**ours, "span": share * theirs[SPAN].flatten()})
    return recorded, module.eval(), share


def test_equals_the_published_numbers(published):
    recorded, module, share = published
    grads = {NAMES[name.split(".")[0]] + ".weight": x for name, x in recorded["grads"].items() if name != SPAN}
    grads["span"] = recorded["grads"][SPAN].flatten() / share

    def run(x, padding_mask):
        """Without the first steps, which the authors' module has as a memory."""
        return module(x)[recorded["max_span"] - 1 :]

    assert_published(module, recorded, grads, run=run)


def test_one_step_at_a_time_equals_the_published_numbers(published):
    recorded, module, _ = published
    steps = in_steps(module, recorded["x"].transpose(0, 1)).transpose(0, 1)
    torch.testing.assert_close(steps[:, recorded["max_span"] - 1 :], recorded["output"], **CLOSE)


def test_training_adds_the_published_penalty_for_each_real_step(published):
    recorded, module, share = published
    x = recorded["x"].transpose(0, 1)
    for mask in (None, scattered_padding(x.shape[1], len(x))):
        real = x.shape[:2].numel() if mask is None else (~mask).sum()
        found = []
        for mode in (True, False):
            out = module.train(mode)(x, padding_mask=mask)
            found.append(torch.autograd.grad(out.square().sum(), module.span)[0])
        expected = recorded["grad_of_loss"].flatten() / share * real
        torch.testing.assert_close(found[0] - found[1], expected, **CLOSE)


@pytest.mark.parametrize("penalty", [0.0, 1e6, -1e6])
def test_a_span_outside_of_the_window_acts_as_the_nearest_and_can_only_come_back(penalty):
    module, [x] = build(), sequences((40, 2, 16))
    module.penalty = penalty
    gradients, outputs = [], []
    for out in (0.0, 0.5):
        with torch.no_grad():
            module.span.copy_(torch.tensor([-out, -out, 1 + out, 1 + out]))
        outputs.append(module(x))
        gradients.append(torch.autograd.grad(outputs[-1].square().sum(), module.span)[0])
    assert outputs[0].equal(outputs[1])
    back = torch.tensor([-1, -1, 1, 1]) * gradients[0] > 0
    assert gradients[0].ne(0).all() and gradients[1].equal(gradients[0].where(back, 0))
    assert not penalty or back.tolist() == ([False, False, True, True] if penalty > 0 else [True, True, False, False])


@pytest.mark.parametrize("kind", [AdaptiveSpanAttention, CAUSAL], ids=["encoder", "decoder"])
@torch.no_grad()
def test_no_head_sees_beyond_its_span_and_ramp(kind):
    """Counted among the real steps; at the start a head sees its ramp."""
    module, [x], mask = build(kind).eval(), sequences((70, 3, 16)), mixed_padding(70)
    module.out_proj = torch.nn.Identity()  # a channel is of one head
    assert not module.span.any()
    spans = torch.tensor([0, 2.5, 11.25, 20])
    module.span.copy_(spans / 20)
    for row in range(3):
        real = (~mask[row]).nonzero()[:, 0]
        at = len(real) // 2
        for distance in range(1, min(at, 24)):
            changed = x.clone()
            changed[real[at - distance], row] += 1
            seen = module(changed, padding_mask=mask) != module(x, padding_mask=mask)
            heads = seen[real[at], row].unflatten(0, (4, 4)).any(-1)
            assert heads.equal((distance < spans + 5) & (distance <= 20))


@pytest.mark.parametrize("penalty", [-1.0, float("nan"), float("inf")])
def test_a_penalty_that_is_none_is_refused(penalty):
    with pytest.raises(UsageError, match=f"^penalty {penalty}: must be 0 or more"):
        build(penalty=penalty)
