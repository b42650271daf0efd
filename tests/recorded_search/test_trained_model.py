"""Both searches on a trained model, whose probabilities are not uniform and whose translations end by themselves."""

from itertools import islice
from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

import fairseq_luna
import operator_tape
from fairseq_luna.recorded_search import RecordedSearch
from fairseq_luna.recorded_search.sequence_generator import CLOSE, agree
from recorded import record
from support import EOS

SENTENCES, BATCH, BEAM = 80, 16, 4
TRAINED = record.HERE / "trained" / "luna-prenorm-adam.pt"


def searches(**options: Any) -> tuple[Any, SequenceGenerator, list[Any]]:
    """The trained model, fairseq's generator for it, and batches of the sentences it was trained on."""
    translator = fairseq_luna.load(TRAINED, data=record.HERE / "prepared" / "bin", **options)
    task, [model] = translator.task, translator.models
    task.load_dataset("train")
    batches = task.get_batch_iterator(task.dataset("train"), max_sentences=BATCH).next_epoch_itr(shuffle=False)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=BEAM, max_len_a=1.5, max_len_b=10)
    return model, generator, list(islice(batches, SENTENCES // BATCH))


def tokens_of(hypotheses: Any) -> list[Any]:
    return [[hypothesis["tokens"].tolist() for hypothesis in sentence] for sentence in hypotheses]


@pytest.mark.parametrize("recording", [None, operator_tape.record], ids=["eager", "replayed"])
def test_a_trained_model_has_the_hypotheses_of_fairseq(recording):
    model, generator, batches = searches()
    search = RecordedSearch(generator, record=recording)
    lengths = set()
    for batch in batches:
        found, expected = search.generate(batch), generator.generate([model], batch)
        assert tokens_of(found) == tokens_of(expected)
        assert agree(found, expected, 1e-5)
        lengths |= {len(sentence[0]["tokens"]) for sentence in found}
    assert len(lengths) > 5


def test_hypotheses_that_differ_in_bf16_are_ties():
    """Kernels of bf16 round differently for another number of rows: the searches differ where rounding decides."""
    model, generator, batches = searches(bf16=True)
    exact, _, _ = searches()
    search = RecordedSearch(generator)
    equal = total = 0
    for batch in batches:
        found, expected = search.generate(batch), generator.generate([model], batch)
        assert agree(found, expected, CLOSE[torch.bfloat16])
        sources = batch["net_input"]["src_tokens"]
        for source, ours, theirs in zip(sources, found, expected, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                score = score_of(exact, source, one["tokens"])
                assert float(one["score"]) == pytest.approx(score, abs=CLOSE[torch.bfloat16])
                total += 1
                if one["tokens"].equal(other["tokens"]):
                    equal += 1
                else:
                    assert score == pytest.approx(score_of(exact, source, other["tokens"]), abs=CLOSE[torch.bfloat16])
    assert total == SENTENCES * BEAM
    assert equal / total >= 0.9


@torch.no_grad()
def score_of(model: Any, source: Tensor, tokens: Tensor) -> float:
    """The mean log-probability of ``tokens (T,)`` as a translation of ``source (S,)``, in one pass."""
    prefix = torch.cat([tokens.new_tensor([EOS]), tokens[:-1]])[None]
    logits, _ = model(source[None], None, prefix)
    log_probs = logits[0].log_softmax(dim=1).gather(1, tokens[:, None])
    return float(log_probs.mean())
