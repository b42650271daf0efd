import threading

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fairseq_luna.ops.once_per_batch import once_per_batch, one_pass


def counted():
    calls = []

    @once_per_batch
    def lengths(mask, factor):
        calls.append(factor)
        return (~mask).sum(1) * factor

    return lengths, calls


def padding():
    return torch.tensor([[False, True, True], [False, False, True]])


def test_a_pass_makes_the_same_of_the_same_mask_and_numbers_once():
    (lengths, calls), (others, calls_of_others) = counted(), counted()

    @one_pass
    def layers(mask):
        first = lengths(mask, 2)
        assert lengths(mask, 3).tolist() == [3, 6]
        assert lengths(~mask, 2).tolist() == [4, 2]
        assert lengths(mask, 2) is first and others(mask, 2) is not first
        return first

    assert layers(padding()).tolist() == [2, 4]
    assert calls == [2, 3, 2] and calls_of_others == [2]


def test_nothing_outlives_a_pass():
    lengths, calls = counted()
    mask = padding()

    @one_pass
    def layers(fails=False):
        assert lengths(mask, 1).tolist() == (~mask).sum(1).tolist()
        if fails:
            raise ValueError

    layers()
    mask.data[0] = False
    layers()
    with pytest.raises(ValueError):
        layers(fails=True)
    mask.data[1] = True
    assert lengths(mask, 1).tolist() == [3, 0]
    assert lengths(mask, 1) is not lengths(mask, 1), "outside a pass it is made at every call"
    assert len(calls) == 6


def test_threads_and_passes_within_a_pass_make_their_own():
    lengths, calls = counted()
    mask = padding()

    @one_pass
    def inner():
        return lengths(mask, 1)

    @one_pass
    def outer():
        first, others = lengths(mask, 1), [inner()]
        thread = threading.Thread(target=lambda: others.append(lengths(mask, 1)))
        thread.start()
        thread.join()
        assert lengths(mask, 1) is first and all(each is not first for each in others)

    outer()
    assert len(calls) == 3


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_graph_of_a_pass_contains_what_it_reads(mode):
    of_size = once_per_batch(lambda mask, size: mask.new_zeros(size) | mask)

    @one_pass
    def layers(mask):
        return of_size(mask, mask.shape), of_size(mask, mask.shape)

    mask = padding()
    layers(mask)
    for result in make_fx(layers, tracing_mode=mode)(mask)(~mask):
        assert result.equal(~mask)
    assert torch.jit.trace(layers, mask)(~mask)[1].equal(~mask)


def test_a_compiled_pass_and_a_compiled_layer_contain_what_they_read():
    lengths, _ = counted()

    def layer(mask):
        return lengths(mask, 1)

    mask = padding()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    whole = torch.compile(one_pass(layer), backend="eager", fullgraph=True)
    for function in (compiled, one_pass(lambda mask: compiled(mask) + compiled(mask) * 0), whole):
        assert function(mask).tolist() == [1, 2]
        assert function(~mask).tolist() == [2, 1]
