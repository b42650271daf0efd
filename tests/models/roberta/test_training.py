"""fairseq's tasks that read texts, by its own commands: masked_lm, sentence_prediction and ranking."""

from pathlib import Path

import fairseq
import pytest
import torch
from fairseq.models.roberta import RobertaModel

from commands import CLASSIFY, MASKED_LM, READER_SIZES, USER_DIR, on_processes, run, train
from fairseq_luna.models.roberta import LunaRobertaModel, MixedRobertaModel
from reader_data import classification_data, commonsense_data, language_model_data
from support import PAD

SIZES = (*READER_SIZES, "--optimizer=adam", "--lr=0.003")
FAMILIES = {
    "luna": (LunaRobertaModel, ("--arch=luna_roberta_tiny", "--projection-length=4", *SIZES)),
    "mixed": (
        MixedRobertaModel,
        ("--arch=mixed_roberta_tiny", "--encoder-self-attention=fastformer", "--encoder-normalize-before", *SIZES),
    ),
}
RESET = ("--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler")
# fairseq's examples are a folder of the installed package.
COMMONSENSE_QA = Path(fairseq.__file__).parent / "examples" / "roberta" / "commonsense_qa"


@pytest.fixture(scope="module", params=FAMILIES)
def pretrained(request, tmp_path_factory):
    """The model's class, its flags, the data and the last checkpoint after two epochs of masked_lm."""
    folder = tmp_path_factory.mktemp("pretrained")
    model, flags = FAMILIES[request.param]
    data = language_model_data(folder)
    train(data, folder / "model", *flags, *MASKED_LM, "--max-epoch=1")
    return model, flags, data, train(data, folder / "model", *flags, *MASKED_LM, "--max-epoch=2")


def validate(data, path, *flags):
    fixed = (f"--user-dir={USER_DIR}", f"--path={path}", "--cpu", "--valid-subset=valid", "--num-workers=0")
    run("validate", data, *fixed, "--batch-size=4", *flags)


def test_a_language_model_is_resumed_and_validated(pretrained):
    _, flags, data, path = pretrained
    state = torch.load(path, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 6
    assert f"--arch={state['cfg']['model']['_name']}" in flags
    validate(data, path, *MASKED_LM)


def test_a_language_model_fills_a_mask(pretrained):
    model, _, data, path = pretrained
    hub = model.from_pretrained(str(path.parent), path.name, data, bpe="characters")
    filled = hub.fill_mask("ab<mask>ab", topk=5)
    assert len(filled) >= 3  # fairseq leaves out the symbol for the end of a text
    assert all(0 < probability < 1 for _, probability, _ in filled)
    assert hub.extract_features(hub.encode("abc")).shape == (1, 5, 16)


@pytest.mark.parametrize(("how", "inputs"), [("finetune", 1), ("restore", 2)], ids=["texts", "pairs"])
def test_a_language_model_becomes_a_classifier(pretrained, tmp_path, how, inputs):
    model, flags, _, language_model = pretrained
    data = classification_data(tmp_path / "data", inputs=inputs)
    start = {
        "finetune": (f"--finetune-from-model={language_model}",),
        "restore": (f"--restore-file={language_model}", *RESET),
    }[how]
    pooling = ("--pooling=mean",) if how == "finetune" else ()
    path = train(data, tmp_path / "model", *flags, *CLASSIFY, *start, *pooling, "--max-epoch=1", "--lr=1e-9")
    trained, before = (torch.load(each, weights_only=True)["model"] for each in (path, language_model))
    for name in [name for name in before if ".lm_head." in name]:
        assert name not in trained and before.pop(name) is not None
    assert [name for name in before if not torch.allclose(trained[name], before[name], atol=1e-6)] == []
    assert any(name.startswith("classification_heads.") for name in trained)

    hub = model.from_pretrained(str(path.parent), path.name, data, bpe="characters").eval()
    texts = [hub.encode("abc"), hub.encode("abcdefgh", "ij")]
    batch = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PAD)
    together = hub.predict("sentence_classification_head", batch)
    assert together.exp().sum(1).allclose(torch.ones(2))
    fairseqs = RobertaModel.from_pretrained(str(path.parent), path.name, data, bpe="characters").eval()
    for row, text in enumerate(texts):
        for interface in (hub, fairseqs):
            alone = interface.predict("sentence_classification_head", text[None])[0]
            torch.testing.assert_close(together[row], alone, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="a text of 31 tokens is longer than --max-positions 30"):
        hub.predict("sentence_classification_head", torch.zeros(31, dtype=torch.long))
    with pytest.raises(ValueError, match="such a model predicts no tokens; use --task masked_lm"):
        hub.model(texts[0][None])


def test_a_pyramid_is_trained_resumed_and_validated(tmp_path):
    data = classification_data(tmp_path / "data", inputs=1)
    flags = ("--arch=block_pyramid_classifier", "--pyramid-block-sizes=4,8", *SIZES, *CLASSIFY)
    train(data, tmp_path / "model", *flags, "--max-epoch=1")
    path = train(data, tmp_path / "model", *flags, "--max-epoch=2")
    state = torch.load(path, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 6
    assert state["cfg"]["model"]["pyramid_block_sizes"] == "4,8"
    validate(data, path, *CLASSIFY)


@pytest.mark.slow
def test_a_language_model_and_a_classifier_are_trained_by_two_processes(tmp_path):
    shared = (f"--user-dir={USER_DIR}", "--cpu", "--num-workers=0", "--batch-size=4", *FAMILIES["mixed"][1])
    words, classes = tmp_path / "words", tmp_path / "classes"
    for data, folder, flags in (
        (language_model_data(tmp_path), words, MASKED_LM),
        (classification_data(tmp_path / "data", inputs=1), classes, CLASSIFY),
    ):
        start = () if folder is words else (f"--finetune-from-model={words / 'checkpoint_last.pt'}",)
        on_processes(2, "train", data, f"--save-dir={folder}", *shared, *flags, *start, "--max-update=3")
    state = torch.load(classes / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 3


def test_answers_are_ranked(tmp_path):
    flags = ("--task=commonsense_qa", "--num-classes=5", f"--user-dir={COMMONSENSE_QA}", "--pooling=attention")
    (tmp_path / "data").mkdir()
    path = train(
        *(commonsense_data(tmp_path / "data"), tmp_path / "model", *FAMILIES["luna"][1], *flags),
        *("--criterion=sentence_ranking", "--init-token=0", "--max-positions=64", "--max-epoch=1"),
        *("--best-checkpoint-metric=accuracy", "--maximize-best-checkpoint-metric"),
    )
    state = torch.load(path, weights_only=True)
    assert 0 <= state["extra_state"]["val_loss"] <= 100
    assert state["model"]["classification_heads.sentence_classification_head.out_proj.weight"].shape == (1, 16)
