"""SentencePiece models restricted to the pieces that a dictionary has."""

from collections.abc import Container, Iterator, Sequence

from sentencepiece import SentencePieceProcessor

# Share of a dictionary's words that must be pieces of its model: it may join three languages with separate models.
LEAST_KNOWN = 1 / 3
# A model is a message of protocol buffers, whose fields are messages too: among others the pieces, in their order, and
# examples of how text is cut, which a restricted model cuts otherwise.
_PIECE, _EXAMPLES = 1, 4
_MESSAGE = 2  # the type of a field
_UNUSED = bytes([3 << 3, 5])  # the type of a piece that is never in cut text; after an earlier type it replaces that


def restrict_to_words(processor: SentencePieceProcessor, words: Container[str]) -> SentencePieceProcessor:
    """``processor``, or if it can cut text into pieces that are not among ``words``, another without these.

    Text is then cut into smaller pieces. Single characters remain, because there are none smaller; of them a text can
    still have unknown ones.

    Raises:
        ValueError: the model cannot be read.
    """
    number_of = range(processor.get_piece_size())
    unused = {
        number
        for number in number_of
        if not (processor.is_control(number) or processor.is_unknown(number) or processor.is_unused(number))
        and len(piece := processor.id_to_piece(number)) > 1
        and not processor.is_byte(number)
        and piece not in words
    }
    if not unused:
        return processor
    restricted_processor = SentencePieceProcessor()
    restricted_processor.LoadFromSerializedProto(_mark_unused(processor.serialized_model_proto(), unused))
    return restricted_processor


def known_share(processor: SentencePieceProcessor, words: Sequence[str]) -> float:
    """The share of ``words`` that are pieces of the model."""
    return sum(not processor.is_unknown(processor.piece_to_id(word)) for word in words) / max(len(words), 1)


def _mark_unused(model: bytes, unused: Container[int]) -> bytes:
    """``model`` with the type UNUSED for the pieces of these numbers."""
    encoded, number = bytearray(), 0
    for field, message in _fields(model):
        if field == _EXAMPLES:
            continue
        if field == _PIECE:
            if number in unused:
                message += _UNUSED
            number += 1
        encoded += _varint(field << 3 | _MESSAGE) + _varint(len(message)) + message
    return bytes(encoded)


def _fields(model: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and content of each field."""
    place = 0
    while place < len(model):
        key, place = _read_varint(model, place)
        size, place = _read_varint(model, place)
        if key & 7 != _MESSAGE or place + size > len(model):
            raise ValueError("is no SentencePiece model")
        yield key >> 3, model[place : place + size]
        place += size


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """The number that begins at ``place``, seven bits a byte, the lowest first, and the place after it."""
    value, shift = 0, 0
    while data[place] & 0x80:
        value |= (data[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return value | data[place] << shift, place + 1


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
