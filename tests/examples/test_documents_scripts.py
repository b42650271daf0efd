"""The scripts of documents: every system parses at every length; one is trained and scored."""

import pytest
import torch
from fairseq.data import indexed_dataset

from examples.wmt14_runs import REPOSITORY, SHORT, SMALL, english_german, refusal, shell
from fairseq_luna.commands.text_files import SEPARATOR
from recipes.settings import command_settings, script_command

DOCUMENTS = REPOSITORY / "examples" / "documents"
BY_NAME = ("mixed_convolution", "--encoder-self-attention=linear", "--decoder-self-attention=linear")
SYSTEMS = [("luna_untied",), ("luna_untied_softmax_source",), ("fastformer",), ("block",), BY_NAME]


@pytest.fixture
def prepared(tiny_data, tmp_path):
    """A small output of scripts/prepare_documents.py, with 1,100 tokens in the last line of its test."""
    (tmp_path / "pieces_9" / "reference").mkdir(parents=True)
    (tmp_path / "pieces_9" / "bin").mkdir()
    data = english_german(tiny_data, tmp_path / "pieces_9" / "bin")
    for language in ("en", "de"):
        test = f"{data}/test.en-de.{language}"
        builder = indexed_dataset.make_builder(f"{test}.bin", "mmap", vocab_size=24)
        builder.merge_file_(f"{data}/valid.en-de.{language}")
        builder.add_item(torch.tensor([4] * 1099 + [2]))
        builder.finalize(f"{test}.idx")
    (tmp_path / "pieces_9" / "reference" / "test.de").write_text(f"w1 {SEPARATOR} w2 w3\n" * 8)
    (tmp_path / "pieces_9" / "reference" / "test.documents").write_text("a\t1\n" * 3 + "a\t2\n" * 5)
    return tmp_path / "pieces_9"


def settings(prepared, *arguments, **environment):
    environment = {"DATA": str(prepared / "bin"), **environment}
    return command_settings(script_command(DOCUMENTS / "train.sh", environment, arguments))


def test_every_system_gets_the_same_training(prepared):
    transformer = settings(prepared, "transformer")
    assert transformer.checkpoint.save_dir == "checkpoints/documents/pieces_9/transformer"
    for arguments in SYSTEMS:
        ours = settings(prepared, *arguments)
        assert (ours.dataset, ours.task, ours.criterion) == (
            transformer.dataset,
            transformer.task,
            transformer.criterion,
        )
        assert ours.optimization == transformer.optimization
        for size in ("encoder_layers", "encoder_embed_dim", "max_source_positions", "max_target_positions", "dropout"):
            assert getattr(ours.model, size) == getattr(transformer.model, size), size


def test_the_warm_up_is_a_third_of_the_updates(prepared):
    ours = settings(prepared, "block", UPDATES="900")
    assert (ours.optimization.max_update, ours.lr_scheduler.warmup_updates) == (900, 180)


@pytest.mark.parametrize(
    ("script", "arguments", "environment", "said"),
    [
        ("train.sh", [], {}, "SYSTEM is transformer, luna_tied"),
        ("train.sh", ["block"], {"UPDATES": "1e3"}, "UPDATES=1e3: it must be a whole number above 0"),
        ("train.sh", ["block"], {"DATA": ""}, "set DATA to the bin folder that scripts/prepare_documents.py made"),
        ("train.sh", ["block"], {"POSITIONS": "1099"}, "has an example of 1100 tokens: set POSITIONS and MAX_TOKENS"),
        ("train.sh", ["block"], {"MAX_TOKENS": "1099"}, "has an example of 1100 tokens: set POSITIONS and MAX_TOKENS"),
        ("score.sh", ["block"], {"DATA": "/nowhere"}, "there is no dict.*.txt in DATA=/nowhere"),
        ("score.sh", ["block"], {"SAVE_DIR": "/nowhere"}, "there is no folder /nowhere: train block first"),
    ],
    ids=["no system", "updates", "no data", "positions", "tokens", "wrong data", "not trained"],
)
def test_bad_values_end_in_one_line(prepared, script, arguments, environment, said):
    line = refusal(shell(DOCUMENTS / script, *arguments, **{"DATA": prepared / "bin", **environment}))
    assert line.startswith(f"{script}: ")
    assert said in line


@pytest.mark.slow
def test_from_training_to_scores(prepared, tmp_path):
    place = {"DATA": prepared / "bin", "SAVE_DIR": prepared / "run", "folder": tmp_path}
    flags = (*SMALL, *SHORT, "--max-update=4", "--save-interval-updates=2")
    trained = shell(DOCUMENTS / "train.sh", "luna_untied", *flags, **place)
    assert trained.returncode == 0, trained.stderr
    scored = shell(DOCUMENTS / "score.sh", "luna_untied", "--cpu", "--max-len-a=0", "--max-len-b=5", **place, LAST=2)
    assert scored.returncode == 0, scored.stderr
    assert ": 2 documents\n" in scored.stdout
    assert "segment BLEU" in scored.stdout
