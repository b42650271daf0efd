"""Characters that no piece can have, and that others stand for."""

import pytest
from fairseq.tokenizer import tokenize_line

from fairseq_luna.commands.scoring.system_output import join_subwords
from fairseq_luna.subwords import NO_PIECE, escape_character, is_blank, join_pieces, restore_characters


@pytest.mark.parametrize("char", NO_PIECE, ids=ascii)
def test_a_character_that_stands_for_another_is_none_that_fairseq_divides_at(char):
    written = f"a{escape_character(char)}b"
    assert tokenize_line(written) == [written]
    assert restore_characters(written) == f"a{char}b"
    assert join_pieces(f"▁{escape_character(char)} {written} ▁c") == f"{char}a{char}b c"


def test_every_white_space_but_the_plain_one_has_such_a_character():
    spaces = {char for char in map(chr, range(0x110000)) if char.isspace()}
    assert spaces - {*NO_PIECE} == {" "}


def test_text_of_nothing_but_them_is_blank():
    assert is_blank(f"▁{escape_character(chr(0xA0))} {escape_character(chr(0x3000))}")
    assert not is_blank(f"▁{escape_character('<')}s>")


@pytest.mark.parametrize("line", ["▁10\U000f202f000 \U000f00a0€ ▁x", "10\U000f202f000\U000f00a0€ x"])
def test_score_restores_them_in_pieces_and_in_text_that_fairseq_joined(line):
    assert join_subwords([line]).lines == ["10\u202f000\u00a0€ x"]
