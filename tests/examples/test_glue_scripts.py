"""The scripts of GLUE: the authors' settings for each task and system; pairs are trained on and scored."""

import pytest

from examples.wmt14_runs import REPOSITORY, refusal, shell
from reader_data import classification_data, language_model_data
from recipes.settings import command_settings, script_command

GLUE = REPOSITORY / "examples" / "glue"


@pytest.fixture
def pairs(tmp_path):
    return classification_data(tmp_path / "bin", inputs=2)


def settings(task, system, data, **environment):
    environment = {"DATA": data, "SAVE_DIR": f"{data}/run", **environment}
    return command_settings(script_command(GLUE / "train.sh", environment, [task, system]))


@pytest.mark.parametrize(
    ("system", "model"), [("transformer", "mixed"), ("luna", "luna"), ("fastformer", "mixed"), ("block", "mixed")]
)
def test_the_authors_fine_tuning(system, model, pairs):
    ours = settings("QNLI", system, pairs)
    assert str(ours.model._name).startswith(f"{model}_roberta")
    assert (ours.model.encoder_layers, ours.model.encoder_embed_dim, ours.model.max_positions) == (12, 768, 512)
    assert (ours.model.dropout, ours.model.activation_dropout, ours.model.attention_dropout) == (0.1, 0.1, 0.1)
    assert (ours.dataset.batch_size, ours.dataset.max_tokens, ours.optimization.max_update) == (32, 8192, 65520)
    assert (ours.optimization.lr, ours.lr_scheduler.warmup_updates) == ([1e-5], 2000)
    assert (ours.task.num_classes, ours.task.separator_token) == (2, 2)


def test_the_other_tasks(pairs, tmp_path):
    for task, updates, warmup, dropout in (("SST-2", 21050, 1263, 0.0), ("QQP", 228000, 6850, 0.1)):
        ours = settings(task, "luna", pairs)
        assert (ours.optimization.max_update, ours.lr_scheduler.warmup_updates) == (updates, warmup)
        assert (ours.lr_scheduler.total_num_update, ours.model.activation_dropout) == (updates, dropout)
    ours = settings("masked_lm", "luna", language_model_data(tmp_path / "text"))
    assert (ours.model.projection_length, ours.task.tokens_per_sample) == (128, 512)
    assert (ours.optimization.lr, ours.lr_scheduler.warmup_updates) == ([6e-4], 15000)
    assert ours.dataset.batch_size * ours.optimization.update_freq[0] == 2048


@pytest.mark.parametrize(
    ("script", "arguments", "environment", "said"),
    [
        ("train.sh", [], {}, "TASK is SST-2, QNLI, QQP or masked_lm, not ''"),
        ("train.sh", ["QQP"], {}, "give a SYSTEM"),
        ("train.sh", ["QQP", "luna"], {"SIZE": "big"}, "SIZE is base or tiny, not 'big'"),
        ("train.sh", ["QQP", "luna"], {"DATA": "/nowhere"}, "there is no input0/dict.txt in DATA=/nowhere"),
        ("train.sh", ["QQP", "luna"], {"START": "/nowhere.pt"}, "there is no checkpoint START=/nowhere.pt"),
        ("train.sh", ["masked_lm", "luna"], {}, "scripts/prepare_masked_lm.py makes it"),
        ("score.sh", [], {}, "give a checkpoint"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_values_end_in_one_line(pairs, script, arguments, environment, said):
    line = refusal(shell(GLUE / script, *arguments, **{"DATA": pairs, **environment}))
    assert line.startswith(f"{script}: ")
    assert said in line


@pytest.mark.slow
def test_from_pairs_to_accuracy(pairs, tmp_path):
    place = {"DATA": pairs, "SAVE_DIR": tmp_path / "run", "folder": tmp_path}
    sizes = (
        "--encoder-layers=1",
        "--encoder-embed-dim=16",
        "--encoder-ffn-embed-dim=16",
        "--encoder-attention-heads=2",
    )
    flags = (*sizes, "--max-update=1", "--cpu", "--num-workers=0", "--data-buffer-size=0")
    trained = shell(GLUE / "train.sh", "QQP", "luna_2", *flags, LENGTH=48, **place)
    assert trained.returncode == 0, trained.stderr
    scored = shell(GLUE / "score.sh", str(tmp_path / "run" / "checkpoint_best.pt"), "--cpu", "--num-workers=0", **place)
    assert scored.returncode == 0, scored.stderr
    assert float(scored.stdout) in {round(100 * right / 6, 1) for right in range(7)}
