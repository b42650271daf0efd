import threading

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fairseq_luna.ops.padding import Padding, computed_once, in_own_segment
from numeric import mixed_padding, randn


def test_real_steps_are_moved_together_and_back():
    x, mask = randn(3, 2, 40, 5, grad=False), mixed_padding(40)
    padding = Padding(mask)
    packed = padding.pack_left(x)
    for row in range(3):
        real = x[row][:, ~mask[row]]
        assert packed[row, :, : real.shape[1]].equal(real)
        assert not packed[row, :, real.shape[1] :].any()
    assert padding.restore_order(packed).equal(padding.zero(x))
    assert padding.restore_order(padding.put_real_first(x)).equal(x)
    assert padding.restore_places(padding.put_real_first(x)).equal(padding.zero(x))
    assert torch.arange(40).expand(3, 40).equal(padding.real_first.sort(1).values)


@pytest.mark.parametrize("slots", [1, 7, 40, 60])
def test_segments_are_equal_parts_of_the_real_steps(slots):
    mask = mixed_padding(40)
    own = in_own_segment(Padding(mask), slots, 40, mask.device)
    for row in range(3):
        real = own[row][:, ~mask[row]]
        count = min(slots, real.shape[1])
        assert real.sum(0).eq(1).all()
        assert real[:count].any(1).all() and not real[count:].any()
        sizes = real[:count].sum(1)
        assert sizes.max() - sizes.min() <= 1
        assert real.int().argmax(0).diff().ge(0).all(), "segments are in order"
    whole = in_own_segment(Padding(), slots, 40, mask.device)
    assert whole.equal(in_own_segment(Padding(torch.zeros(1, 40, dtype=torch.bool)), slots, 40, mask.device))


def counted():
    calls = []

    @computed_once
    def lengths(padding, factor):
        calls.append(factor)
        return (~padding.mask).sum(1) * factor

    return lengths, calls


def padding_mask():
    return torch.tensor([[False, True, True], [False, False, True]])


def test_makes_the_same_of_the_same_arguments_once():
    (lengths, calls), (others, calls_of_others) = counted(), counted()
    padding = Padding(padding_mask())
    first = lengths(padding, 2)
    assert first.tolist() == [2, 4] and lengths(padding, 3).tolist() == [3, 6]
    assert lengths(padding, 2) is first and others(padding, 2) is not first
    assert lengths(Padding(padding.mask), 2) is not first
    assert calls == [2, 3, 2] and calls_of_others == [2]
    assert Padding.of(padding) is padding and Padding.of(None).mask is None
    assert padding.with_mask(2, 3, "cpu") is padding and padding.lengths is padding.lengths


def test_threads_may_share_one():
    lengths, _ = counted()
    padding, found = Padding(padding_mask()), []
    threads = [threading.Thread(target=lambda: found.append(lengths(padding, 1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(x.tolist() == [1, 2] for x in found) and len(found) == 8


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_graph_contains_what_it_reads(mode):
    of_size = computed_once(lambda padding, size: padding.mask.new_zeros(size) | padding.mask)

    def layers(mask):
        padding = Padding(mask)
        return of_size(padding, mask.shape), of_size(padding, mask.shape)

    mask = padding_mask()
    for result in make_fx(layers, tracing_mode=mode)(mask)(~mask):
        assert result.equal(~mask)
    assert torch.jit.trace(layers, mask)(~mask)[1].equal(~mask)


def test_a_compiled_layer_takes_one_and_keeps_nothing_in_it():
    lengths, _ = counted()
    compiled = torch.compile(lambda padding: lengths(padding, 1) + padding.lengths, backend="eager", fullgraph=True)
    for mask in (padding_mask(), ~padding_mask()):
        padding = Padding(mask)
        for _ in range(2):
            assert compiled(padding).tolist() == (2 * (~mask).sum(1)).tolist()
        assert not padding.derived
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
