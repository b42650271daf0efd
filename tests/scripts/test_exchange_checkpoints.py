"""Different translations are found; with equal ones the training resumes."""

import pytest

import exchange_checkpoints
from fairseq_luna.usage_error import UsageError

WRITTEN = {"H-0": (-0.5, "w1 w2"), "H-1": (-1.25, "w3")}


def test_rounding_is_accepted():
    exchange_checkpoints.compare(WRITTEN, {"H-0": (-0.501, "w1 w2"), "H-1": (-1.249, "w3")}, "luna_tiny")


@pytest.mark.parametrize(
    ("here", "said"),
    [
        ({"H-0": (-0.5, "w1 w2"), "H-1": (-1.25, "w4")}, "H-1"),
        ({"H-0": (-0.51, "w1 w2"), "H-1": (-1.25, "w3")}, "H-0"),
        ({"H-0": (-0.5, "w1 w2")}, "2 sentences were translated there, 1 here"),
    ],
    ids=["other-words", "other-score", "sentence-missing"],
)
def test_a_difference_is_named(here, said):
    with pytest.raises(UsageError, match=f"luna_tiny: .*{said}|luna_tiny: {said}"):
        exchange_checkpoints.compare(WRITTEN, here, "luna_tiny")


def test_no_translations_are_a_difference():
    with pytest.raises(UsageError, match="0 sentences"):
        exchange_checkpoints.compare({}, {}, "luna_tiny")


@pytest.mark.slow
def test_a_written_checkpoint_is_read_and_its_training_resumed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(exchange_checkpoints, "ARCHITECTURES", ("luna_tiny",))
    exchange_checkpoints.write(tmp_path)
    exchange_checkpoints.read(tmp_path)
    assert "luna_tiny read, the same translations, training resumed" in capsys.readouterr().out

    generated = tmp_path / "luna_tiny.generated"
    generated.write_text(generated.read_text(encoding="utf-8").replace("H-0\t-", "H-0\t-9"), encoding="utf-8")
    with pytest.raises(UsageError, match="H-0 was -9"):
        exchange_checkpoints.read(tmp_path)
