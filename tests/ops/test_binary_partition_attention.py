"""Promises of BP-Transformer's attention beside the contract of every op."""

import pytest
import torch
import torch.nn.functional as F

from every_op import OPS
from fairseq_luna.ops.binary_partition_attention import (
    binary_partition_attention,
    binary_partition_attention_reference,
    binary_partition_attention_step,
    seen_nodes,
    tree_attention,
)
from support import golden

FORMS = pytest.mark.parametrize(
    "form", [binary_partition_attention_reference, binary_partition_attention], ids=["reference", "training"]
)
SIZES = [(1, 1), (1, 40), (2, 37), (4, 64), (3, 101)]


def span(node, count):
    level, number = node
    return set(range(number << level, min((number + 1) << level, count)))


@pytest.mark.parametrize("case", range(7))
def test_a_step_sees_the_nodes_of_the_authors_graph(case):
    """Except where a node does not exist: there their graph has an edge to the first node of the next level."""
    recorded = golden("bp.pt")[case]
    count, nodes, levels, causal = (recorded[name] for name in ("length", "nodes", "levels", "causal"))
    theirs = {}
    for i, *node, relation in zip(
        *(recorded[name].tolist() for name in ("step", "level", "number", "relation")), strict=True
    ):
        theirs.setdefault(i, set()).add((tuple(node), relation))
    sides = 1 if causal else 2
    for i in range(count):
        ours = set()
        for node, row in seen_nodes(i, count, (levels, sides, nodes, 8), causal):
            level, side, m = (row - 1) // (sides * nodes), (row - 1) // nodes % sides, (row - 1) % nodes
            ours.add((node, (2 * nodes + 1) * level + 2 * m + 1 + side if row else 0))
        assert ours <= theirs[i]
        for node, _ in theirs[i] - ours:
            assert node[0] and not node[1] and not causal


@pytest.mark.parametrize(("nodes", "count"), SIZES)
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "causal"])
def test_a_step_sees_every_other_once_in_spans_that_grow(nodes, count, causal):
    for i in range(count):
        seen = [node for node, _ in seen_nodes(i, count, (3, 2, nodes, 8), causal)]
        steps = [step for node in seen for step in span(node, count)]
        assert sorted(steps) == list(range(i + 1 if causal else count))
        assert len(seen) <= 1 + 2 * nodes * (count.bit_length() + 1)


@FORMS
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "causal"])
def test_with_as_many_nodes_as_steps_it_is_softmax_attention(form, causal):
    q, k, v, *_ = OPS["bp-3"].make(T=9)
    positions = q.new_zeros(1, 1 if causal else 2, 9, 8)
    found = form(q, k, v, q.new_ones(2, 8), q.new_zeros(8), positions, causal=causal)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(q, k, v, is_causal=causal))


@FORMS
def test_without_a_query_a_span_is_the_mean_of_its_steps(form):
    q, k, v, *_ = OPS["bp-1"].make(B=1, H=1, T=7)
    positions = q.new_zeros(1, 1, 1, 8)
    found = form(q, k, v, q.new_zeros(1, 8), q.new_zeros(8), positions, causal=True)[0, 0, 6]
    # With one node a level, step 6 sees 6, 5, the only child 4 in place of 4 to 5, and so on.
    spans = [slice(6, 7), slice(5, 6), slice(4, 5), slice(0, 4)]
    keys, values = (torch.stack([x[0, 0, span].mean(0) for span in spans]) for x in (k, v))
    torch.testing.assert_close(found, (keys @ q[0, 0, 6] / 8**0.5).softmax(0) @ values)


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "causal"])
@pytest.mark.parametrize(("nodes", "count"), [(1, 9), (2, 3), (2, 33), (4, 70)])
def test_the_last_level_of_a_compiled_graph_may_have_no_node_that_is_seen(nodes, count, causal, monkeypatch):
    inputs = OPS["bp-3-causal" if causal else "bp-3"].make(T=count, K=nodes)
    padding = torch.arange(count) >= torch.tensor([[count]] * (len(inputs[0]) - 1) + [[count - 2]])
    expected = binary_partition_attention(*inputs, padding=padding, causal=causal)
    expected = expected, *torch.autograd.grad(expected.square().sum(), inputs)
    levels = tree_attention._levels_for(count, nodes)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    found = binary_partition_attention(*inputs, padding=padding, causal=causal)
    torch.testing.assert_close((found, *torch.autograd.grad(found.square().sum(), inputs)), expected)
    assert tree_attention._levels_for(count, nodes) == levels + levels % 2


@torch.no_grad()
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_generation_finds_every_node_that_a_long_text_needs(nodes):
    """Nodes are made later than their last step, and leave the cache."""
    op = OPS["bp-1-causal"]
    inputs = op.make(B=1, H=1, T=700, D=2, K=nodes)
    state, found = None, []
    for t in range(700):
        now = [x[:, :, t : t + 1] for x in inputs[:3]]
        y, state = binary_partition_attention_step(*now, *inputs[3:], state)
        found.append(y)
    torch.testing.assert_close(torch.cat(found, dim=2), binary_partition_attention(*inputs, causal=True))
