"""The options of a search, read from fairseq's generator."""

from dataclasses import dataclass
from typing import Any

from fairseq.search import BeamSearch
from torch import Tensor


@dataclass(frozen=True)
class SearchSettings:
    """The options of fairseq's ``SequenceGenerator`` that are constants of a recorded token.

    Args:
        beam: hypotheses K that are kept for each sentence.
        pad, eos, unk: token indices.
        unk_penalty: subtracted from the log-probability of ``unk``.
        temperature: that logits are divided by.
        weights_layer: the layer whose cross-attention weights the hypotheses have; below 0: they have none.
        weights_heads: number of heads whose mean the weights are; None: of all heads.
    """

    beam: int
    pad: int
    eos: int
    unk: int
    unk_penalty: float = 0.0
    temperature: float = 1.0
    weights_layer: int = -1
    weights_heads: int | None = None

    @classmethod
    def of(cls, generator: Any) -> "SearchSettings":
        """The settings of a ``SequenceGenerator``.

        Raises:
            UsageError: the generator is asked for alignments, and its model has no cross-attention.
        """
        layer, heads = generator.model.single_model.decoder.requested_weights(None, None, False)
        return cls(
            beam=generator.beam_size,
            pad=generator.pad,
            eos=generator.eos,
            unk=generator.unk,
            unk_penalty=generator.unk_penalty,
            temperature=generator.temperature,
            weights_layer=layer,
            weights_heads=heads,
        )


def unsupported_option(
    generator: Any, prefix_tokens: Tensor | None = None, constraints: Tensor | None = None
) -> str | None:
    """The option of fairseq's ``generator`` that only its own search has, as a user knows it; None: there is none."""
    model = generator.model.single_model
    decoder = getattr(model, "decoder", None)
    reasons = {
        "an ensemble of several models": generator.model.models_size > 1,
        f"the model {type(model).__name__} of another package": not hasattr(decoder, "read_source"),
        "--sampling, --diverse-beam-groups or another search": type(generator.search) is not BeamSearch,
        "--prefix-size": prefix_tokens is not None,
        "--constraints": constraints is not None,
        "--lm-path": generator.lm_model is not None,
        "--no-repeat-ngram-size": generator.repeat_ngram_blocker is not None,
        "suppressed tokens": bool(getattr(generator, "token_indices_to_suppress", None)),
        "--match-source-len": generator.match_source_len,
        "--adaptive-softmax-cutoff": getattr(decoder, "adaptive_softmax", None) is not None,
        # At the first token fairseq has fewer candidates then.
        f"--beam {generator.beam_size}, too many for the vocabulary": 2 * generator.beam_size
        > generator.vocab_size - 2,
    }
    return next((name for name, applies in reasons.items() if applies), None)
