"""Models with one attention by name."""

from fairseq_luna.models.mixed.attentions import ATTENTIONS, PLACES
from fairseq_luna.models.transformer.checks import flag


def flags_for(name: str) -> list[str]:
    """Flags of fairseq-train for the attention ``name`` in encoder and decoder, where it can stand there.

    Elsewhere, and from target to source, it is softmax attention.
    """
    places = [place for place in ATTENTIONS[name].factories() if place != "source"]
    return [f"{flag(PLACES[place])}={name}" for place in places]
