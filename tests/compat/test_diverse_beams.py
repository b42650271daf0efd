"""``--diverse-beam-groups``: hypotheses do not depend on the numbers that sentences have in the data."""

import torch
from fairseq.search import DiverseBeamSearch
from fairseq.sequence_generator import SequenceGenerator

from commands import FAMILIES, generate, train
from support import PAD, build_luna, sentences, translation_task

DATA = sentences(9, 3, 6, 4, 8, 2)


def diverse():
    return DiverseBeamSearch(translation_task().target_dictionary, num_groups=2, diversity_strength=2.0)


def hypotheses(generator, rows, numbers=None):
    """Of each row of DATA its hypotheses, found as a batch, whose sentences have these ``numbers`` in the data."""
    source = DATA[rows]
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}}
    if numbers is not None:
        sample["id"] = torch.tensor(numbers)
    found = generator.generate([], sample)
    return [[(beam["tokens"].tolist(), round(beam["score"].item(), 4)) for beam in beams] for beams in found]


def test_each_sentence_has_the_hypotheses_that_it_has_alone():
    search = diverse()
    options = {"beam_size": 4, "max_len_a": 1, "max_len_b": 3, "search_strategy": search}
    generator = SequenceGenerator([build_luna().eval()], translation_task().target_dictionary, **options)
    alone = [hypotheses(generator, [row])[0] for row in range(len(DATA))]
    assert len({str(each) for each in alone}) == len(DATA)
    for rows in ([0, 1, 2], [3, 4, 5], [5, 0, 4, 1]):
        for numbers in (None, rows, [row + 90 for row in rows], list(range(len(rows)))[::-1]):
            assert hypotheses(generator, rows, numbers) == [alone[row] for row in rows], numbers


def test_can_be_scripted():
    results = []
    scripted = torch.jit.script(diverse())
    for search in (diverse(), scripted):
        words = torch.randn(3, 4, 44, generator=torch.Generator().manual_seed(0)).log_softmax(2)
        first = search.step(0, words, torch.zeros(3, 4, 2))
        rows = torch.tensor([0, 1, 2])
        if hasattr(scripted, "prune_sentences"):  # not with fairseq 0.12.2
            rows = torch.tensor([0, 2])
            search.prune_sentences(rows)
        results.append((*first, *search.step(1, words[: len(rows)], torch.zeros(len(rows), 4, 2))))
    torch.testing.assert_close(*results)


def test_several_batches_are_generated(tiny_data, tmp_path, capsys):
    saved = train(tiny_data, tmp_path, *FAMILIES["luna"], "--optimizer=adam", "--max-update=1", "--disable-validation")
    generate(tiny_data, str(saved), "--batch-size=3", "--beam=4", "--diverse-beam-groups=2", "--nbest=4")
    lines = capsys.readouterr().out.splitlines()
    assert sorted({line.partition("\t")[0] for line in lines if line.startswith("H-")}) == [f"H-{n}" for n in range(7)]
