"""Each family trains, validates and translates by fairseq's own commands."""

import logging
import math
import re
from types import SimpleNamespace

import pytest

from commands import APOLLO, FAMILIES, USER_DIR, generate, run, train


@pytest.fixture(scope="module", params=FAMILIES.values(), ids=FAMILIES.keys())
def trained(request, tiny_data, tmp_path_factory):
    """A model of a family after three epochs of Apollo, and before."""
    folder = tmp_path_factory.mktemp("trained")
    flags = (*request.param, *APOLLO, "--max-epoch=3", "--save-interval-updates=12")
    path = train(tiny_data, folder, *flags, "--keep-interval-updates=2")
    return SimpleNamespace(data=tiny_data, path=str(path), before=str(folder / "checkpoint_2_12.pt"))


def lines(output, kind):
    """The lines of fairseq-generate that begin with ``kind-``, by sentence number."""
    return {int(number): rest for number, rest in re.findall(rf"^{kind}-(\d+)\t(.*)$", output, flags=re.M)}


def translations(output):
    """Each sentence's best hypothesis."""
    return {number: rest.split("\t")[1] for number, rest in lines(output, "H").items()}


def test_validate(trained):
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    progress = logging.getLogger("fairseq.logging.progress_bar")
    progress.addHandler(handler)
    run(
        "validate",
        *(trained.data, f"--user-dir={USER_DIR}", f"--path={trained.path}", "--cpu", "--task=translation"),
        *("--valid-subset=valid", "--num-workers=0", "--batch-size=4", "--log-format=simple"),
    )
    progress.removeHandler(handler)
    (summary,) = (record.getMessage() for record in records)
    assert 0 < float(re.search(r"\| loss ([\d.]+)", summary)[1]) < 2 * math.log2(28)
    assert "bsz 7" in summary


@pytest.mark.parametrize(
    "flags",
    [
        ("--beam=1",),
        ("--beam=5", "--batch-size=3"),
        ("--sampling", "--sampling-topk=5", "--beam=2", "--nbest=2"),
        ("--retain-dropout", "--beam=2"),
        ("--diverse-beam-groups=2", "--beam=4"),
    ],
    ids=["greedy", "beam", "sampling", "dropout", "diverse"],
)
def test_generate_translates_every_sentence(trained, capsys, flags):
    generate(trained.data, trained.path, *flags)
    assert sorted(translations(capsys.readouterr().out)) == list(range(7))


def test_ensemble_of_two_models_scores_between_them(trained, capsys):
    scores = []
    for checkpoints in (trained.path, trained.before, f"{trained.path}:{trained.before}"):
        generate(trained.data, checkpoints, "--score-reference")
        found = lines(capsys.readouterr().out, "H")
        scores.append(sum(float(rest.split("\t")[0]) for rest in found.values()))
    first, second, ensemble = scores
    assert first != second
    assert min(first, second) <= ensemble + 1e-6
    assert ensemble <= max(first, second) + 0.7 * 7


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_print_alignment_aligns_every_target_word_to_source_words(trained, capsys, kind):
    generate(trained.data, trained.path, f"--print-alignment={kind}", "--beam=2")
    output = capsys.readouterr().out
    sources, alignments = lines(output, "S"), lines(output, "A")
    assert sorted(alignments) == list(range(7))
    for number, alignment in alignments.items():
        source_length = len(sources[number].split()) + 1
        if kind == "hard":
            assert all(int(pair.split("-")[0]) < source_length for pair in alignment.split())
        else:
            for row in alignment.split(" "):
                shares = [float(share) for share in row.split(",")]
                assert len(shares) == source_length
                assert sum(shares) == pytest.approx(1.0, abs=1e-3)
