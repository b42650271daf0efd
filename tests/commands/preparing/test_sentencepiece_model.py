"""SentencePiece's pieces keep the characters of the training text, and read equivalents of them."""
# ruff: noqa: RUF001 (characters that look alike are the subject)

import unicodedata

import pytest
import sentencepiece
from fairseq.tokenizer import tokenize_line

from corpus_files import text
from fairseq_luna.commands.preparing.sentencepiece_model import Segmenter, frequent_characters, learn_pieces
from fairseq_luna.subwords import join_pieces

KEPT = [
    "他说：“好，１０⁶ 米！”（注①）……",
    "\u3000「ＡＢＣ」と\u3000書いた。ｶﾞ ガ が か\u3099",
    "½ ⅓ x² H₂O ™ № ﬁn ﬂag Ǆ ĳ",
    "10\u202f000\u00a0€\u00a0: «\u00a0oui\u00a0»\u2009!",
    "cafe\u0301 café A\u030a Å Å 한글 \u1112\u1161\u11ab",
    "zero\u200bwidth soft\u00adhyphen \ufeffmark \u200fright ক\u200dষ",
    "a\u2581b _ c\u2581 \u2581",
    "<s>old</s> <unk> x<pad>y </s>",
    "👩\u200d👩\u200d👧 \U0001f1e9\U0001f1ea \x01control\x7f",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "train").write_bytes(text([*KEPT, "the end of it", "a b"] * 20))
    learn_pieces([folder / "train"], folder, vocabulary=900, coverage=1.0)
    return folder / "joint.model"


@pytest.mark.parametrize("line", KEPT)
def test_text_comes_back_as_it_was(line, model):
    """From fairseq's reading of the pieces, and from SentencePiece's own joining."""
    [pieces] = Segmenter(model)([line])
    assert "<unk>" not in pieces
    assert pieces.split(" ") == tokenize_line(pieces)
    assert join_pieces(pieces) == line
    assert sentencepiece.SentencePieceProcessor(model_file=str(model)).decode(pieces.split(" ")) == line


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("  a   b ", "a b"),
        ("a\tb\x0bb\x85a\u2028b", "a b b a b"),
        ("a\u2003b\u205fa", "a b a"),  # white space that the text lacks
        ("e\u0304nd ⒜ ㎞ ﬀ", None),
        ("the\u200e e\u2060nd", "the end"),
        ("fﬀ", "fff"),
        ("ｔｈｅ ꓘ", None),
    ],
)
def test_what_the_text_lacks_is_read_as_an_equivalent_that_it_has(line, read, model):
    [pieces] = Segmenter(model)([line])
    if read is None:
        assert "<unk>" in pieces
    else:
        assert join_pieces(pieces) == read


def test_accents_are_read_in_both_spellings(tmp_path):
    for name, written, other in (("nfc", "é ü が 한", "NFD"), ("nfd", "e\u0301 u\u0308", "NFC")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train").write_bytes(text([written] * 9))
        learn_pieces([folder / "train"], folder, vocabulary=40, coverage=1.0)
        [pieces] = Segmenter(folder / "joint.model")([unicodedata.normalize(other, written)])
        assert join_pieces(pieces) == written


def test_fairseqs_marks_are_never_pieces(model):
    """As pieces they would be read as the end of a sentence."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    marks = {"<s>", "</s>", "<pad>", "<unk>"}
    for line in ("</s>", "a</s> <s>b", "<unk><pad>", "the </s> end"):
        assert not marks & set(processor.encode(line, out_type=str))


def test_no_piece_has_white_space(model):
    pieces = (model.with_suffix(".vocab")).read_text(encoding="utf-8").split("\n")
    assert all(len(tokenize_line(piece.split("\t")[0])) == 1 for piece in pieces if piece)
    assert len(pieces) > 100


def test_rare_characters_are_those_beyond_the_coverage(tmp_path):
    (tmp_path / "train").write_bytes(text(["abababab", "c"]))
    assert frequent_characters([tmp_path / "train"], 0.8) == {"a", "b"}
    assert frequent_characters([tmp_path / "train"], 1.0) == {"a", "b", "c"}
