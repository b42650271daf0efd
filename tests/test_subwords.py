"""Characters that no piece can have, and that others stand for."""

import pytest
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
from fairseq.tokenizer import tokenize_line
from sentencepiece import SentencePieceTrainer

import fairseq_luna.models  # noqa: F401 (patches fairseq's decoding)
from fairseq_luna.commands.scoring.system_output import join_subwords
from fairseq_luna.subwords import (
    NO_PIECE,
    RESERVED,
    escape_character,
    escapes_characters,
    is_blank,
    join_pieces,
    restore_characters,
)


@pytest.mark.parametrize("char", NO_PIECE, ids=ascii)
def test_a_character_that_stands_for_another_is_none_that_fairseq_divides_at(char):
    written = f"a{escape_character(char)}b"
    assert tokenize_line(written) == [written]
    assert restore_characters(written) == f"a{char}b"
    assert join_pieces(f"▁{escape_character(char)} {written} ▁c") == f"{char}a{char}b c"


def test_every_white_space_but_the_plain_one_and_controls_has_such_a_character():
    spaces = {char for char in map(chr, range(0x110000)) if char.isspace()}
    assert spaces - {*NO_PIECE} == {" ", *"\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"}


@pytest.mark.parametrize("char", RESERVED, ids=ascii)
def test_a_private_use_character_of_the_text_itself_comes_back(char):
    for text in (char, char * 3, f"a{char}b", *(f"{char}{other}{char}" for other in RESERVED)):
        written = "".join(escape_character(c) if c in (*RESERVED, *NO_PIECE) else c for c in text)
        assert written != text and restore_characters(written) == text


@pytest.mark.parametrize("char", "\t\n\r\x85\u2028", ids=ascii)
def test_a_private_use_character_that_stands_for_nothing_stays(char):
    private_use = chr(0xF0000 + ord(char))
    assert restore_characters(private_use) == join_pieces(f"▁{private_use}") == private_use


def foreign_model(folder):
    """A SentencePiece model of a text with private-use characters, as another program learns it."""
    text = folder / "text"
    text.write_text("\U000f00a0\U000f3000 icons of a font <s> one two\n" * 9, encoding="utf-8")
    SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "joint"), vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    return folder / "joint.model"


def test_the_private_use_characters_of_another_programs_model_stay(tmp_path):
    model = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(foreign_model(tmp_path))))
    assert not escapes_characters(model.sp)
    line = "\U000f00a0\U000f3000 icons"
    assert model.decode(model.encode(line)) == line
    pieces = " ".join(model.sp.encode(line, out_type=str))
    assert join_pieces(pieces, escaped=False) == line


def test_score_takes_them_for_text_if_the_reference_has_them():
    lines = ["a \U000f00a0 b", "c\U000f202f"]
    assert join_subwords(lines, references=["\U000f00a0"]).lines == lines
    assert join_subwords(lines, references=["a", "c"]).lines == ["a \u00a0 b", "c\u202f"]


def test_text_of_nothing_but_them_is_blank():
    assert is_blank(f"▁{escape_character(chr(0xA0))} {escape_character(chr(0x3000))}")
    assert not is_blank(f"▁{escape_character('<')}s>")
    assert not is_blank(escape_character(chr(0xA0)))  # in text it stands for itself


@pytest.mark.parametrize("line", ["▁10\U000f202f000 \U000f00a0€ ▁x", "10\U000f202f000\U000f00a0€ x"])
def test_score_restores_them_in_pieces_and_in_text_that_fairseq_joined(line):
    assert join_subwords([line]).lines == ["10\u202f000\u00a0€ x"]
