"""The Multi30k systems: each parses and differs only in model and optimizer; one is trained and scored."""

import pytest

from examples.wmt14_runs import REPOSITORY, SHORT, SMALL, english_german, refusal, shell
from recipes.settings import command_settings, script_command

MULTI30K = REPOSITORY / "examples" / "multi30k"
SYSTEMS = (
    "transformer",
    "luna_tied",
    "luna_untied",
    "luna_untied_softmax_source",
    "luna_convolution",
    "luna_tied_apollo",
    "transformer_apollo",
    "fastformer",
    "fastformer_convolution",
    "block",
    "block_convolution",
)


@pytest.fixture
def prepared(tiny_data, tmp_path):
    """A small output of scripts/prepare_multi30k.py: the folder of its bin and reference."""
    for folder in ("bin", "reference"):
        (tmp_path / folder).mkdir()
    english_german(tiny_data, tmp_path / "bin")
    (tmp_path / "reference" / "test.de").write_text("w1 w2 w3\n" * 7)
    return tmp_path


def settings(system, prepared, **environment):
    environment = {"DATA": str(prepared / "bin"), "SAVE_DIR": str(prepared / "run"), **environment}
    return command_settings(script_command(MULTI30K / "train.sh", environment, [system]))


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_gets_the_same_training(system, prepared):
    ours, transformer = settings(system, prepared), settings("transformer", prepared)
    assert ours.dataset == transformer.dataset
    assert ours.task == transformer.task
    assert ours.criterion == transformer.criterion
    assert ours.optimization.max_update == transformer.optimization.max_update == 3000
    for size in ("encoder_layers", "decoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "dropout"):
        assert getattr(ours.model, size) == getattr(transformer.model, size), size


def test_apollos_recipe_is_for_every_system(prepared):
    ours = settings("block_convolution_apollo", prepared)
    assert (ours.optimizer._name, ours.optimization.lr, ours.lr_scheduler.warmup_updates) == ("apollo", [0.2], 500)
    assert ours.model.block_kernel_size == 5
    assert ours.model.encoder_normalize_before and ours.model.decoder_normalize_before


def test_the_published_setting(prepared):
    published = settings("luna_tied", prepared, SETTING="published")
    assert published.optimization.max_update == 8000
    assert published.optimization.update_freq == [2]
    assert published.checkpoint.patience == 10


@pytest.mark.parametrize(
    ("script", "arguments", "environment", "said"),
    [
        ("train.sh", [], {}, "SYSTEM is transformer, luna_tied"),
        ("train.sh", ["luna"], {}, "not 'luna'"),
        ("train.sh", ["block"], {"DATA": ""}, "set DATA"),
        ("train.sh", ["block"], {"DATA": "/nowhere"}, "there is no dict.*.txt in DATA=/nowhere"),
        ("train.sh", ["block"], {"SETTING": "long"}, "SETTING is short or published, not 'long'"),
        ("score.sh", [], {}, "give a system"),
        ("score.sh", ["block"], {"DATA": ""}, "set DATA"),
        ("score.sh", ["block"], {"SAVE_DIR": "/nowhere"}, "there is no folder /nowhere: train block first"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_values_end_in_one_line(prepared, script, arguments, environment, said):
    line = refusal(shell(MULTI30K / script, *arguments, **{"DATA": prepared / "bin", **environment}))
    assert line.startswith(f"{script}: ")
    assert said in line


@pytest.mark.slow
def test_from_training_to_scores(prepared, tmp_path):
    place = {"DATA": prepared / "bin", "SAVE_DIR": prepared / "run", "folder": tmp_path}
    # Only complete epochs save a checkpoint to average.
    epochs = ("--max-update=100", "--max-epoch=2")
    trained = shell(MULTI30K / "train.sh", "luna_tied_apollo", *SMALL, *SHORT, *epochs, **place)
    assert trained.returncode == 0, trained.stderr
    scored = shell(
        MULTI30K / "score.sh", "luna_tied_apollo", "--cpu", "--gen-subset=valid", "--max-len-b=5", **place, LAST=2
    )
    assert scored.returncode == 0, scored.stderr
    assert "sacreBLEU" in scored.stdout
