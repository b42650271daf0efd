"""fairseq's tasks that read their flags from the model's config, or the model from theirs: trained or refused."""

import shutil

import pytest
import torch

from commands import FAMILIES, USER_DIR, run, train
from fairseq_luna.usage_error import UsageError
from reader_data import CHOICES, language_model_data, ranking_data

SIZES = ("--encoder-layers=1", "--encoder-embed-dim=16", "--encoder-ffn-embed-dim=16", "--encoder-attention-heads=2")
READERS = {
    name: (f"--arch={name}", *SIZES) for name in ("luna_roberta_tiny", "mixed_roberta_tiny", "block_pyramid_classifier")
}
TRAINED = ("--optimizer=adam", "--lr=0.003", "--max-update=2")


def refusal(data, folder, *flags):
    with pytest.raises(UsageError) as refused:
        run("train", data, f"--user-dir={USER_DIR}", f"--save-dir={folder}", "--cpu", "--batch-size=4", *flags)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("task", ["multilingual_translation", "semisupervised_translation"])
@pytest.mark.parametrize("flags", [*FAMILIES.values(), *READERS.values()], ids=lambda flags: flags[0])
def test_a_task_of_one_model_for_each_pair_is_refused(tiny_data, tmp_path, task, flags):
    message = refusal(tiny_data, tmp_path, f"--task={task}", "--lang-pairs=a-b,b-a", *flags)
    assert message.startswith(
        f"--task {task}: it trains a model for each pair of languages, and {flags[0]}".replace("=", " ")
    )
    assert "use another task, such as translation_multi_simple_epoch" in message


@pytest.mark.parametrize("flags", READERS.values(), ids=READERS)
@pytest.mark.parametrize("task", ["translation", "translation_multi_simple_epoch"])
def test_a_reader_of_texts_is_refused_for_translation(tiny_data, tmp_path, task, flags):
    pairs = ("--lang-pairs=a-b",) if "multi" in task else ()
    message = refusal(tiny_data, tmp_path, f"--task={task}", *pairs, *flags)
    assert message.startswith(f"--task {task}: it has sources and targets")


@pytest.mark.parametrize("name", ["luna_roberta_tiny", "mixed_roberta_tiny"])
def test_a_language_model_of_several_languages_is_trained(tmp_path, name):
    (tmp_path / "data" / "xx").mkdir(parents=True)
    data = language_model_data(tmp_path / "data" / "xx")
    shutil.copy(f"{data}/dict.txt", tmp_path / "data")
    path = train(
        *(str(tmp_path / "data"), tmp_path / "model", "--task=multilingual_masked_lm", "--criterion=masked_lm"),
        *("--tokens-per-sample=30", *READERS[name], *TRAINED),
    )
    # Two more than the longest text, because fairseq counts positions from the padding symbol.
    state = torch.load(path, weights_only=True)
    assert state["model"]["encoder.sentence_encoder.embed_positions.weight"].shape == (32, 16)


@pytest.mark.parametrize("name", READERS)
def test_answers_are_ranked_if_the_length_is_given(tmp_path, name):
    (tmp_path / "data").mkdir()
    data = ranking_data(tmp_path / "data")
    task = ("--task=sentence_ranking", "--criterion=sentence_ranking", f"--num-classes={CHOICES}", "--init-token=0")
    message = refusal(data, tmp_path / "model", *task, *READERS[name])
    assert message == "--task sentence_ranking: it has no longest text; give --max-positions, such as 512"
    path = train(data, tmp_path / "model", *task, "--separator-token=2", "--max-positions=64", *READERS[name], *TRAINED)
    assert torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"] == 2
