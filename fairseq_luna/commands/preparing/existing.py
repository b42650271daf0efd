"""SentencePiece models and dictionaries that were made before, for other data."""

from collections.abc import Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from ...piece_models import known_share
from ...usage_error import UsageError
from .dictionaries import read

# Of the words of a dictionary that are pieces of its own model: nearly all; models of one alphabet share many pieces.
LEAST_OWN = 0.95
FILLER = "madeupword"  # fairseq fills up a dictionary with them


def check_existing(model: Path, dictionaries: Sequence[Path]) -> None:
    """Raises UsageError for files that cannot be read, or do not belong together."""
    try:
        processor = SentencePieceProcessor(model_file=str(model))
    except (OSError, RuntimeError) as error:
        raise UsageError(f"--pieces {model}: is no SentencePiece model, or cannot be read") from error
    for path in dictionaries:
        dictionary = read(path)
        words = [word for word in dictionary.symbols[dictionary.nspecial :] if not word.startswith(FILLER)]
        if (share := known_share(processor, words)) < LEAST_OWN:
            raise UsageError(
                f"--dictionary {path}: {share:.0%} of its words are pieces of --pieces {model}, so that it is another"
                " model's; give the dictionary and the SentencePiece model of the same data"
            )
