"""fairseq's commands with checkpoints of the Luna paper's authors' program: read, or refused with the flag to give.

That is fairseq-apollo, which is fairseq of 2020. Here checkpoints of ours are written as it saves them.
"""

from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils

from commands import APOLLO, CLASSIFY, FAMILIES, MASKED_LM, READER_SIZES, generate, train
from fairseq_luna.usage_error import UsageError
from reader_data import classification_data, language_model_data
from support import sentences

LUNA = FAMILIES["luna"]
READER = ("--arch=luna_roberta_tiny", "--projection-length=4", *READER_SIZES, "--optimizer=adam", "--lr=1e-9")
OUR_NAMES = {
    "self_attn_packed_layer_norm": "self_atten_proj_layer_norm",
    "encoder_attn_packed_layer_norm": "encoder_atten_proj_layer_norm",
    "packed_embeddings": "projected_embeddings",
    "sentence_encoder.layernorm_packed_embedding": "sentence_encoder.proj_emb_layer_norm",
    "sentence_encoder.layernorm_embedding": "sentence_encoder.emb_layer_norm",
}


def as_theirs(checkpoint, path, *, arch, last_norm):
    """Write a ``checkpoint`` of ours to ``path`` as their program would have, of a model that they call ``arch``.

    ``last_norm`` is the norm of the packed sequence after the last layer, which they have and nothing reads. Weights of
    norms are stored less 1. The schedule's state is that of their milestones.
    """
    ours = torch.load(checkpoint, weights_only=True)
    model = {}
    for name, value in ours["model"].items():
        for our, their in OUR_NAMES.items():
            name = name.replace(our, their)
        model[name] = value - 1 if "norm" in name and name.endswith(".weight") else value
    size = ours["cfg"]["model"]["encoder_embed_dim"]
    model |= {f"{last_norm}.{parameter}": torch.zeros(size) for parameter in ("weight", "bias")}
    model.pop("encoder.sentence_encoder.version", None)
    [group] = ours["last_optimizer_state"]["param_groups"]
    group["params"] = list(range(len(group["params"]) + 2))
    history = {**ours["optimizer_history"][-1], "lr_scheduler_state": {"lr": 0.1}}
    cfg = {**ours["cfg"]["model"], **ours["cfg"]["task"]}
    flags = {name: value for name, value in cfg.items() if name.isidentifier() and not name.startswith("_")}
    flags |= {"arch": arch, "task": ours["cfg"]["task"]["_name"], "optimizer": "apollo", "lr": [0.1]}
    kept = {name: ours[name] for name in ("extra_state", "last_optimizer_state")}
    torch.save({"args": Namespace(**flags), "model": model, "optimizer_history": [history], **kept}, path)
    return path


@pytest.fixture(scope="module")
def ours(tiny_data, tmp_path_factory):
    return train(tiny_data, tmp_path_factory.mktemp("ours"), *LUNA, *APOLLO, "--max-update=3")


@pytest.fixture(scope="module")
def theirs(ours, tmp_path_factory):
    path = tmp_path_factory.mktemp("theirs") / "theirs.pt"
    return as_theirs(ours, path, arch="luna_base", last_norm="decoder.layers.1.encoder_atten_proj_layer_norm")


def hypotheses(capsys, data, path):
    capsys.readouterr()
    generate(data, str(path), "--batch-size=4")
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("H-", "P-"))]


def test_their_translation_is_ours(tiny_data, ours, theirs, capsys):
    expected, found = (hypotheses(capsys, tiny_data, path) for path in (ours, theirs))
    assert len(found) == 14
    assert found == expected


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], r"holds no state of --lr-scheduler milestone \('best' is missing\): give --reset-lr-scheduler, or"),
        (["--reset-lr-scheduler"], "holds an optimizer's state of other parameters than the model's: give --reset-opt"),
    ],
    ids=["schedule", "optimizer"],
)
def test_what_cannot_be_resumed_is_said_with_the_flag(tiny_data, theirs, tmp_path, flags, message):
    with pytest.raises(UsageError, match=rf"^{theirs} {message}") as raised:
        train(tiny_data, tmp_path, *LUNA, *APOLLO, "--max-update=5", f"--restore-file={theirs}", *flags)
    assert "\n" not in str(raised.value)


def test_their_model_is_trained_further_with_the_flag(tiny_data, theirs, tmp_path):
    path = train(tiny_data, tmp_path, *LUNA, *APOLLO, "--max-update=5", f"--restore-file={theirs}", "--reset-optimizer")
    assert torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"] == 5


def test_their_language_model_becomes_a_classifier(tmp_path):
    (tmp_path / "texts").mkdir()
    texts = language_model_data(tmp_path / "texts")
    ours = train(texts, tmp_path / "ours", *READER, *MASKED_LM, "--max-update=2", "--lr=0.01")
    last_norm = "encoder.sentence_encoder.layers.1.self_atten_proj_layer_norm"
    theirs = as_theirs(ours, tmp_path / "theirs.pt", arch="luna_base_512", last_norm=last_norm)
    tokens = sentences(9, 4, words=10)
    (expected, _), (found, _) = (
        checkpoint_utils.load_model_ensemble([str(path)])[0][0].eval()(tokens) for path in (ours, theirs)
    )
    torch.testing.assert_close(found, expected)
    data = classification_data(tmp_path / "data", inputs=1)
    start = f"--finetune-from-model={theirs}"
    path = train(data, tmp_path / "classifier", *READER, *CLASSIFY, start, "--max-update=1")
    trained, before = (torch.load(each, weights_only=True)["model"] for each in (path, ours))
    read = {name: value for name, value in before.items() if ".lm_head." not in name}  # a classifier has no output
    assert read.keys() <= trained.keys()
    for name, value in read.items():
        torch.testing.assert_close(trained[name], value, rtol=0, atol=1e-5, msg=name)
