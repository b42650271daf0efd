"""SentencePiece's pieces, which joined are the text (tests/commands/test_prepare.py), of every character and line."""

from corpus_files import pairs, text
from fairseq_luna.commands.preparing.sentencepiece_model import Segmenter, learn_pieces


def learned(folder, lines, vocabulary):
    """The pieces; the model is beside the text."""
    (folder / "train").write_bytes(text(lines))
    learn_pieces([folder / "train"], folder, vocabulary=vocabulary, coverage=1.0)
    return [line.split("\t")[0] for line in (folder / "joint.vocab").read_text(encoding="utf-8").splitlines()]


def test_long_lines_are_learned_and_unknown_characters_are_marked(tmp_path):
    """SentencePiece leaves lines of more than 4,192 bytes out unless it is told otherwise."""
    assert "▁quartz" in learned(tmp_path, [*(german for _, german in pairs(60)), "quartz " * 1000], 80)
    cut = Segmenter(tmp_path / "joint.model")
    assert cut(["Ω heute", ""]) == ["▁ <unk> " + cut(["heute"])[0], ""]


def test_fewer_pieces_than_requested_are_reported(tmp_path, capsys):
    found = learned(tmp_path, [german for _, german in pairs(100)], 9000)
    assert capsys.readouterr().out == f"  only {len(found)} pieces: the text has no more\n"
