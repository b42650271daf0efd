import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.ops.block_partition import block_counts, cut_by_number, cut_by_size, from_blocks, layout, to_blocks
from numeric import randn, random_padding

MASKS = st.builds(
    lambda batch, steps, share, seed: random_padding(batch, steps, share=share, seed=seed),
    st.integers(1, 4),
    st.integers(1, 60),
    st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    st.integers(0, 1000),
)
NUM_BLOCKS = st.sampled_from([0, 1, 2, 7, 100])


def whole(batch, steps):
    return torch.zeros(batch, steps, dtype=torch.bool)


def used_sizes(blocks):
    """The block sizes of each sentence."""
    return [[size for size in row if size] for row in blocks.sizes.tolist()]


def blocks_by_reading(blocks, mask):
    """The steps of each block of each sentence, in order, from the block index of each step."""
    rows = []
    for index, padded in zip(blocks.block.tolist(), mask.tolist(), strict=True):
        cut = {}
        for step, (block, skip) in enumerate(zip(index, padded, strict=True)):
            if not skip:
                cut.setdefault(block, []).append(step)
        rows.append(cut)
    return rows


@settings(max_examples=80, deadline=None)
@given(mask=MASKS, num_blocks=NUM_BLOCKS)
def test_equal_blocks_follow_the_formula_with_any_padding(mask, num_blocks):
    blocks = cut_by_number(mask, num_blocks)
    for row, padded in enumerate(mask):
        real = (~padded).nonzero().flatten().tolist()
        count = int(block_counts(torch.tensor(len(real)), num_blocks))
        expected = [position * count // len(real) for position in range(len(real))]
        assert blocks.block[row, real].tolist() == expected
        sizes = used_sizes(blocks)[row]
        assert len(sizes) == (count if real else 0)
        assert sum(sizes) == len(real) and (not sizes or max(sizes) - min(sizes) <= 1)


@settings(max_examples=80, deadline=None)
@given(mask=MASKS, num_blocks=NUM_BLOCKS, seed=st.integers(0, 2**31))
def test_random_sizes_are_between_their_bounds_and_sum_to_the_length(mask, num_blocks, seed):
    torch.manual_seed(seed)
    blocks = cut_by_number(mask, num_blocks, random=True)
    for length, sizes in zip((~mask).sum(1).tolist(), used_sizes(blocks), strict=True):
        count = int(block_counts(torch.tensor(length), num_blocks))
        assert sum(sizes) == length
        if length:
            assert len(sizes) == count
            assert all(1 <= size <= 2 * length / count for size in sizes)


@settings(max_examples=80, deadline=None)
@given(mask=MASKS, size=st.integers(1, 70))
def test_blocks_of_a_size_follow_the_formula_with_any_padding(mask, size):
    blocks = cut_by_size(mask, size)
    for row, padded in enumerate(mask):
        real = (~padded).nonzero().flatten()
        assert blocks.block[row, real].tolist() == [position // size for position in range(len(real))]
    assert blocks.capacity == min(size, mask.shape[1])


@settings(max_examples=80, deadline=None)
@given(mask=MASKS, num_blocks=NUM_BLOCKS, how=st.sampled_from(["equal", "random", "size"]))
def test_steps_go_to_their_blocks_in_order_and_back(mask, num_blocks, how):
    blocks = (
        cut_by_size(mask, 1 + num_blocks) if how == "size" else cut_by_number(mask, num_blocks, random=how == "random")
    )
    batch, steps = mask.shape
    x = randn(batch, 2, steps, 3)
    (laid_out,) = to_blocks(x, blocks=blocks)
    by_block = laid_out.unflatten(0, blocks.sizes.shape)
    for row, cut in enumerate(blocks_by_reading(blocks, mask)):
        for block, size in enumerate(blocks.sizes[row].tolist()):
            members = cut.get(block, [])
            assert len(members) == size <= blocks.capacity
            torch.testing.assert_close(by_block[row, block, :, :size], x[row][:, members])
    real = ~mask[:, None, :, None]
    torch.testing.assert_close(from_blocks(laid_out, blocks) * real, x * real)
    (gradient,) = torch.autograd.grad((from_blocks(laid_out, blocks) * real * x.detach()).sum(), x)
    torch.testing.assert_close(gradient, (x * real).detach())


@pytest.mark.parametrize("length", [1, 2, 3, 10, 64, 512, 1000, 5000])
def test_the_default_number_of_blocks_is_about_the_cheapest(length):
    best = min(length**2 / m + m**2 for m in range(1, length + 1))
    count = int(block_counts(torch.tensor(length), 0))
    assert length**2 / count + count**2 <= best * (1.03 if length > 3 else 1.25)
    assert length != 512 or count == 51


def test_a_short_sentence_has_no_more_blocks_than_steps():
    assert block_counts(torch.tensor([0, 1, 3, 8, 100]), 8).tolist() == [1, 1, 3, 8, 8]


def test_random_blocks_differ_between_calls_and_follow_the_seed():
    mask = whole(3, 200)
    torch.manual_seed(5)
    first, second = (cut_by_number(mask, 0, random=True).sizes for _ in range(2))
    torch.manual_seed(5)
    again = cut_by_number(mask, 0, random=True).sizes
    assert first.equal(again) and not first.equal(second)
    assert not first[0].equal(first[1])
    torch.manual_seed(5)
    assert cut_by_number(mask[:1], 0, random=True).sizes[0].equal(first[0]), "of a sentence whatever its batch"


@pytest.mark.parametrize(
    ("length", "num_blocks"), [(200, 20), (60, 6), (30, 20)], ids=["n200-m20", "n60-m6", "n30-m20"]
)
def test_random_sizes_of_every_block_use_the_whole_range(length, num_blocks):
    torch.manual_seed(0)
    sizes = cut_by_number(whole(4000, length), num_blocks, random=True).sizes.double()
    mean, largest = length / num_blocks, 2 * length // num_blocks
    assert (sizes.mean(0) - mean).abs().max() < 0.08 * mean
    assert sizes.min() == 1 and sizes.max() == largest
    uniform = ((2 * mean - 1) ** 2 / 12) ** 0.5
    assert 0.6 * uniform < sizes.std() < 1.3 * uniform
    assert sizes.std(0).max() < 1.2 * sizes.std(0).min()


def test_random_sizes_have_the_same_spread_in_a_longer_batch():
    torch.manual_seed(0)
    padded = (torch.arange(300) >= 12).expand(20_000, 300)
    alone, beside = (cut_by_number(mask, 0, random=True).sizes for mask in (whole(20_000, 12), padded))
    count = alone.shape[1]
    assert beside.shape[1] > count and not beside[:, count:].any()
    spreads = [sizes[:, :count].double().std().item() for sizes in (alone, beside)]
    assert spreads[0] == pytest.approx(spreads[1], rel=0.02)


@pytest.mark.parametrize("random", [False, True], ids=["equal", "random"])
@pytest.mark.parametrize("num_blocks", [0, 5])
def test_the_layout_fits_every_shorter_sentence_closely(num_blocks, random):
    steps = 150
    most, capacity = layout(steps, num_blocks, random)
    mask = torch.arange(steps) >= torch.arange(1, steps + 1)[:, None]
    for _ in range(20):
        blocks = cut_by_number(mask, num_blocks, random=random)
        assert blocks.sizes.shape[1] == most and int(blocks.sizes.max()) <= capacity
    assert most * capacity <= (2 if random else 1.3) * steps


def test_a_long_sequence_is_cut_exactly():
    steps = 300_000
    for random in (False, True):
        blocks = cut_by_number(whole(1, steps), 0, random=random)
        assert int(blocks.sizes.sum()) == steps and int(blocks.sizes.min()) >= 1
        assert int(blocks.sizes.max()) <= 2 * steps / blocks.sizes.shape[1]
