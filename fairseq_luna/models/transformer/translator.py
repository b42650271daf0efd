"""fairseq's hub interface: a trained model as an object that translates text."""

from typing import Any

from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor

from ...usage_error import UsageError
from .decoder import CausalDecoder


class Translator(GeneratorHubInterface):
    """A trained model, or an ensemble, that translates text.

    It is fairseq's hub interface, of which these are of most use:

    - ``translate(text or texts, beam=5, **options)`` and ``sample``: text to text. Options are those of fairseq's
      generation, such as ``lenpen=0.6``, or ``sampling=True, sampling_topk=10``.
    - ``generate(tokens, beam=5, **options)``: for each sentence of ``encode(text)`` its hypotheses, the best first,
      with ``tokens``, ``score``, ``positional_scores`` and, with ``print_alignment="hard"``, ``alignment``.
    - ``encode(text)``, ``decode(tokens)``: through the subword model. ``to("cuda")``, ``half()``: as any module.
    """

    def generate(self, tokenized_sentences: Any, beam: int = 5, verbose: bool = False, **options: Any) -> Any:
        """See :class:`fairseq.hub_utils.GeneratorHubInterface`, whose models cannot be asked for alignments later.

        Raises:
            UsageError: a sentence is longer than the model reads, or a size of the search cannot be.
        """
        if isinstance(tokenized_sentences, Tensor) and tokenized_sentences.dim() == 1:
            return self.generate([tokenized_sentences], beam, verbose, **options)[0]
        if beam < 1:
            raise UsageError(f"beam {beam}: must be 1 or more")
        longest = self.max_positions[0]
        for tokens in tokenized_sentences:
            if len(tokens) > longest and not options.get("skip_invalid_size_inputs"):
                begin = self.src_dict.string(tokens[:5])
                raise UsageError(
                    f"a sentence has {len(tokens)} pieces, the model reads at most {longest}: {begin} ...; cut it, or"
                    " load with more max_source_positions, unless positions are learned"
                )
        if self.cfg.dataset.max_tokens is not None:  # the training's: a longer sentence is a batch of its own
            self.cfg.dataset.max_tokens = max(self.cfg.dataset.max_tokens, *map(len, tokenized_sentences), 0)
        for model in self.models:
            if isinstance(model.decoder, CausalDecoder):
                model.decoder.need_attn = bool(options.get("print_alignment", self.cfg.generation.print_alignment))
        try:
            return super().generate(tokenized_sentences, beam, verbose, **options)
        except AssertionError as error:
            if "max_len" not in str(error):
                raise
            raise UsageError(f"max_len_a, max_len_b: {error}") from error
