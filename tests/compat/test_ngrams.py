"""``--no-repeat-ngram-size``: no n-gram twice in a hypothesis, and nothing else blocked."""

import math

import pytest
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given
from hypothesis import strategies as st

from support import EOS, PAD, build_luna, sentences, translation_task

WORDS = 9


def generated(size):
    """Three hypotheses of thirty words for each of two sentences; the models repeat themselves."""
    source = sentences(5, 9)
    task = translation_task()
    settings = {"beam_size": 3, "max_len_b": 30, "min_len": 30, "no_repeat_ngram_size": size}
    generator = SequenceGenerator([build_luna().eval()], task.target_dictionary, **settings)
    lengths = source.ne(PAD).sum(1)
    found = generator.generate([], {"net_input": {"src_tokens": source, "src_lengths": lengths}})
    return [hypothesis["tokens"].tolist() for beam in found for hypothesis in beam]


def repeated(tokens, size):
    ngrams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    return len(ngrams) - len(set(ngrams))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_is_generated_twice(size):
    assert all(repeated(tokens, size) for tokens in generated(0))
    hypotheses = generated(size)
    assert [repeated(tokens, size) for tokens in hypotheses] == [0] * 6
    assert {len(tokens) for tokens in hypotheses} == {31}


@given(st.lists(st.lists(st.integers(4, 6), min_size=6, max_size=6), min_size=2, max_size=2), st.data())
def test_blocks_what_would_repeat_and_nothing_else(rows, data):
    size, step = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 6))
    buffer = torch.full((2, 12), PAD)
    buffer[:, 0] = EOS
    buffer[:, 1 : step + 1] = torch.tensor(rows)[:, :step]
    scores = torch.zeros(2, WORDS)
    blocked = NGramRepeatBlock(size, use_extension=False)(buffer, scores, 1, 2, step)
    assert blocked is scores
    for row, left in zip(rows, blocked, strict=True):
        written = row[:step]
        for word, score in enumerate(left.tolist()):
            repeats = repeated([*written, word], size) > repeated(written, size)
            assert score == (-math.inf if repeats else 0.0)


def test_can_be_scripted():
    blocker = torch.jit.script(NGramRepeatBlock(2, use_extension=False))
    blocked = blocker(torch.tensor([[EOS, 5, 6, 5, PAD]]), torch.zeros(1, WORDS), 1, 1, 3)
    assert blocked.isinf().nonzero().tolist() == [[0, 6]]
