"""The scripts of summarisation: every system parses in both sizes; one is trained on shortened texts and scored."""

import pytest

from examples.wmt14_runs import REPOSITORY, SHORT, SMALL, refusal, renamed, shell
from recipes.settings import command_settings, script_command

SUMMARIZATION = REPOSITORY / "examples" / "summarization"


@pytest.fixture
def prepared(tiny_data, tmp_path):
    """As fairseq-luna prepare makes it, with the valid split of the tests' data as its test."""
    (tmp_path / "letters" / "reference").mkdir(parents=True)
    (tmp_path / "letters" / "bin").mkdir()
    renamed(tiny_data, tmp_path / "letters" / "bin", "article", "abstract")
    (tmp_path / "letters" / "reference" / "test.abstract").write_text("w1 w2. w3\n" * 7)
    return tmp_path / "letters"


def settings(prepared, system, **environment):
    environment = {"DATA": str(prepared / "bin"), **environment}
    return command_settings(script_command(SUMMARIZATION / "train.sh", environment, [system]))


def test_every_system_gets_the_same_training(prepared):
    transformer = settings(prepared, "transformer")
    assert transformer.checkpoint.save_dir == "checkpoints/summarization/letters/transformer"
    assert (transformer.model.max_source_positions, transformer.task.max_source_positions) == (4096, 4096)
    assert transformer.task.truncate_source
    for system in ("luna_untied", "fastformer", "block"):
        ours = settings(prepared, system)
        for part in ("dataset", "task", "criterion", "optimizer", "optimization", "lr_scheduler"):
            assert getattr(ours, part) == getattr(transformer, part), part
        for size in ("encoder_layers", "decoder_embed_dim", "max_source_positions", "dropout"):
            assert getattr(ours.model, size) == getattr(transformer.model, size), size


def test_sizes_and_lengths(prepared):
    ours = settings(prepared, "fastformer", SIZE="tiny", POSITIONS="512", UPDATES="500")
    assert (ours.model.encoder_layers, ours.model.encoder_embed_dim, ours.model.max_source_positions) == (4, 128, 512)
    assert (ours.optimization.max_update, ours.lr_scheduler.warmup_updates, ours.optimization.lr) == (500, 50, [0.005])
    base = settings(prepared, "luna_tied_apollo")
    assert (base.model.encoder_layers, base.model.decoder_embed_dim, base.optimization.lr) == (6, 512, [0.1])


@pytest.mark.parametrize(
    ("script", "arguments", "environment", "said"),
    [
        ("train.sh", [], {}, "SYSTEM is transformer, luna_tied"),
        ("train.sh", ["block"], {"SIZE": "big"}, "SIZE is base or tiny, not 'big'"),
        (
            "train.sh",
            ["block"],
            {"MAX_TOKENS": "4000"},
            "MAX_TOKENS=4000: it must be at least 4096, the longest document or summary",
        ),
        ("train.sh", ["block"], {"POSITIONS": "512", "MAX_TOKENS": "512"}, "it must be at least 1024, the longest"),
        ("train.sh", ["block"], {"DATA": ""}, "set DATA to the bin folder that fairseq-luna prepare made"),
        ("score.sh", ["block"], {}, "train block first, or set SAVE_DIR"),
    ],
    ids=["no system", "size", "tokens", "tokens of summaries", "no data", "not trained"],
)
def test_bad_values_end_in_one_line(prepared, script, arguments, environment, said):
    line = refusal(shell(SUMMARIZATION / script, *arguments, **{"DATA": prepared / "bin", **environment}))
    assert line.startswith(f"{script}: ")
    assert said in line


@pytest.mark.slow
def test_from_training_to_scores(prepared, tmp_path):
    pytest.importorskip("rouge_score")
    place = {"DATA": prepared / "bin", "folder": tmp_path}
    flags = (*SMALL, *SHORT, "--max-update=4", "--save-interval-updates=2")
    trained = shell(SUMMARIZATION / "train.sh", "luna_untied", *flags, **place, SAVE_DIR=prepared / "run", POSITIONS=6)
    assert trained.returncode == 0, trained.stderr
    lengths = ("--min-len=1", "--max-len-b=5")
    checkpoint = prepared / "run" / "checkpoint_last.pt"
    score = (SUMMARIZATION / "score.sh", "luna_untied", "--cpu", "--gen-subset=valid", *lengths)
    scored = shell(*score, **place, CHECKPOINT=checkpoint)
    assert scored.returncode == 0, scored.stderr
    assert ": 7 summaries\n" in scored.stdout
    assert "ROUGE-L of sentences" in scored.stdout
