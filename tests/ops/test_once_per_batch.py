import torch

from fairseq_luna.ops.once_per_batch import once_per_batch


def counted():
    calls = []

    @once_per_batch
    def lengths(mask, factor):
        calls.append(factor)
        return (~mask).sum(1) * factor

    return lengths, calls


def padding():
    return torch.tensor([[False, True, True], [False, False, True]])


def test_the_same_mask_and_numbers_give_the_same_object():
    lengths, calls = counted()
    mask = padding()
    first = lengths(mask, 2)
    assert first.tolist() == [2, 4]
    assert lengths(mask, 2) is first and calls == [2]


def test_another_mask_and_other_numbers_are_new():
    lengths, calls = counted()
    mask = padding()
    lengths(mask, 2)
    assert lengths(mask, 3).tolist() == [3, 6]
    assert lengths(mask.clone(), 3).tolist() == [3, 6]
    assert len(calls) == 3


def test_a_mask_that_was_written_to_is_new():
    lengths, _ = counted()
    mask = padding()
    lengths(mask, 1)
    mask[0] = False
    assert lengths(mask, 1).tolist() == [3, 2]


def test_tensors_of_inference_mode_stay_there():
    lengths, calls = counted()
    mask = padding()
    with torch.inference_mode():
        assert lengths(mask, 1).is_inference()
    assert not lengths(mask, 1).is_inference()
    with torch.inference_mode():
        written = padding()
        lengths(written, 1)
        written[0] = False  # leaves no trace
        assert lengths(written, 1).tolist() == [3, 2]
    assert len(calls) == 4


def test_a_graph_contains_what_it_reads():
    lengths, _ = counted()
    mask = padding()
    lengths(mask, 1)
    compiled = torch.compile(lambda mask: lengths(mask, 1), backend="eager", fullgraph=True)
    assert compiled(mask).tolist() == [1, 2]
    mask[0] = False
    assert compiled(mask).tolist() == [3, 2]
    traced = torch.jit.trace(lambda mask: lengths(mask, 1), mask)
    assert traced(~mask).tolist() == [0, 1]
