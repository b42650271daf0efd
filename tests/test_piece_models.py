"""SentencePiece models that cut text into the pieces of a dictionary alone."""

import io

import pytest
import sentencepiece

from fairseq_luna.piece_models import known_share, restrict_to_words

TEXT = "mother mother the other they them moth"


def learned(kind, **options):
    """A model of few words, of which many pieces are only parts of longer ones."""
    model = io.BytesIO()
    sizes = {"vocab_size": 36, "hard_vocab_limit": False, "minloglevel": 2}
    sentences = iter([TEXT] * 50)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences, model_writer=model, model_type=kind, **sizes, **options
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.mark.parametrize("options", [{}, {"self_test_sample_size": 5}], ids=["plain", "self-test"])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_text_is_cut_into_words_of_the_dictionary_where_it_can(kind, options):
    processor = learned(kind, **options)
    new = "theother moth themo mothe"
    lacking = {piece for piece in processor.encode(new, out_type=str) if len(piece) > 1}
    assert len(lacking) > 1
    words = {*map(processor.id_to_piece, range(3, len(processor)))} - lacking
    made = restrict_to_words(processor, words)
    cut = made.encode(new, out_type=str)
    assert set(cut) <= words
    assert made.decode(cut) == new
    again = sentencepiece.SentencePieceProcessor(model_proto=made.serialized_model_proto())
    assert again.encode(new, out_type=str) == cut
    assert restrict_to_words(made, words) is made


def test_a_model_whose_pieces_are_known_is_unchanged():
    processor = learned("bpe")
    pieces = [processor.id_to_piece(number) for number in range(3, len(processor))]
    assert restrict_to_words(processor, pieces) is processor
    assert known_share(processor, pieces) == 1
    assert known_share(processor, ["zoo", "puff", *pieces[:2]]) == 0.5
