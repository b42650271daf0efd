"""fairseq's hub interface: a trained model as an object that translates text."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from inspect import signature
from typing import Any

from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor, nn

from ... import quiet
from ...search_options import check_numbers
from ...subwords import SPACE, mark_of, says_nothing
from ...usage_error import UnreadableText, UsageError
from .decoder import CausalDecoder

PREFIXES = "prefix_allowed_tokens_fn"


class TorchTranslator(GeneratorHubInterface):
    """A trained model, or an ensemble, that translates text. Threads can share one.

    It is fairseq's hub interface, of which these are of most use:

    - ``translate(text or texts, beam=5, **options)`` and ``sample``: text to text. Options are those of fairseq's
      generation, such as ``lenpen=0.6``, or ``sampling=True, sampling_topk=10``.
    - ``generate(tokens, beam=5, **options)``: for each sentence of ``encode(text)`` its hypotheses, the best first,
      with ``tokens``, ``score``, ``positional_scores`` and, with ``print_alignment="hard"``, ``alignment``.
    - ``encode(text)``, ``decode(tokens)``: through the subword model. ``to("cuda")``, ``half()``: as any module.
    """

    def __init__(self, cfg: Any, task: Any, models: Sequence[Any]) -> None:
        super().__init__(cfg, task, models)
        if PREFIXES not in signature(task.build_generator).parameters:
            task.build_generator = _without_prefixes(task.build_generator)
        generator = task.build_generator(self.models, cfg.generation)
        # Besides the end mark those of languages, as in fairseq-generate.
        self.marks = getattr(generator, "symbols_to_strip_from_output", {generator.eos})
        self.reads_pieces = mark_of(self.src_dict) == SPACE

    def sample(self, sentences: Any, beam: int = 1, verbose: bool = False, **options: Any) -> Any:
        """See :class:`fairseq.hub_utils.GeneratorHubInterface`.

        Text without pieces, or too long with ``skip_invalid_size_inputs``, becomes "".
        """
        if isinstance(sentences, str):
            return self.sample([sentences], beam, verbose, **options)[0]
        tokens = {}
        for place, sentence in enumerate(sentences):
            pieces = "" if says_nothing(sentence) else self.apply_bpe(self.tokenize(sentence))
            if not says_nothing(pieces):
                tokens[place] = self.binarize(pieces)
        if options.get("skip_invalid_size_inputs"):
            tokens = {place: some for place, some in tokens.items() if len(some) <= self.max_positions[0]}
        if allowed := options.get(PREFIXES):
            places = list(tokens)
            options[PREFIXES] = lambda sentence, words: allowed(places[sentence], words)
        found = self.generate(list(tokens.values()), beam, verbose, **options) if tokens else []
        texts = {place: self.decode(best["tokens"]) for place, (best, *_) in zip(tokens, found, strict=True)}
        return [texts.get(place, "") for place in range(len(sentences))]

    def generate(self, tokenized_sentences: Any, beam: int = 5, verbose: bool = False, **options: Any) -> Any:
        """See :class:`fairseq.hub_utils.GeneratorHubInterface`, whose models cannot be asked for alignments later.

        Raises:
            UnreadableText: a sentence is longer than the model reads.
            UsageError: a number of the search cannot be.
        """
        if isinstance(tokenized_sentences, Tensor) and tokenized_sentences.dim() == 1:
            return self.generate([tokenized_sentences], beam, verbose, **options)[0]
        check_numbers({"beam": beam, **options})
        longest = self.max_positions[0]
        for tokens in tokenized_sentences:
            if len(tokens) > longest and not options.get("skip_invalid_size_inputs"):
                begin = self.src_dict.string(tokens[:5])
                raise UnreadableText(
                    f"a sentence has {len(tokens)} pieces, the model reads at most {longest}: {begin} ...; cut it, or"
                    " give more max_source_positions (--max-source-positions), unless positions are learned"
                )
        aligned = bool(options.get("print_alignment", self.cfg.generation.print_alignment))
        try:
            with nullcontext() if verbose else quiet.fairseq():  # it logs what is verbose
                translator = self.with_alignment(aligned)
                return GeneratorHubInterface.generate(translator, tokenized_sentences, beam, verbose, **options)
        except (AssertionError, OverflowError) as error:
            if isinstance(error, AssertionError) and "max_len" not in str(error):
                raise
            names = "max_len_a, max_len_b" if isinstance(error, AssertionError) else "max_len_a, lenpen: too large"
            raise UsageError(f"{names}: {error}") from error

    def with_alignment(self, wanted: bool) -> "TorchTranslator":
        """A translator with the same parameters, whose decoders return cross-attention weights if ``wanted``.

        Each call has one of its own, so that threads that share a model do not change each other's results.
        """
        models = []
        for model in self.models:
            if isinstance(model.decoder, CausalDecoder):
                decoder = copy(model.decoder)
                decoder.need_attn = wanted
                model = with_child(model, "decoder", decoder)
            models.append(model)
        return with_child(self, "models", nn.ModuleList(models))

    def apply_bpe(self, sentence: str) -> str:
        """The pieces of ``sentence``, with spaces between them. Raises UnreadableText if nothing can cut it."""
        if self.reads_pieces and self.bpe is None and not (SPACE in sentence or says_nothing(sentence)):
            raise UnreadableText(
                f"{' '.join(sentence.split()[:5])} ...: has no pieces of SentencePiece, which the model reads, and no"
                " subword model was given; load with pieces= (--pieces)"
            )
        return super().apply_bpe(sentence)

    def string(self, tokens: Tensor) -> str:
        """The words of the target, without marks."""
        return self.tgt_dict.string(tokens, extra_symbols_to_ignore=self.marks)

    def _build_batches(self, tokens: Any, skip_invalid_size_inputs: bool) -> Any:
        """As in fairseq, but a sentence with more pieces than the training's batches is a batch of its own."""
        limit = self.cfg.dataset.max_tokens
        if limit is not None:
            limit = max(limit, *map(len, tokens), 0)
        dataset = Namespace(max_tokens=limit, batch_size=self.cfg.dataset.batch_size)
        call = Namespace(cfg=Namespace(dataset=dataset), task=self.task, max_positions=self.max_positions)
        return GeneratorHubInterface._build_batches(call, tokens, skip_invalid_size_inputs)


def with_child(module: Any, name: str, child: nn.Module) -> Any:
    """A shallow copy of ``module``, with the same parameters but another ``child`` of this ``name``."""
    new = copy(module)
    new._modules = module._modules | {name: child}
    return new


def _without_prefixes(build_generator: Callable[..., Any]) -> Callable[..., Any]:
    """A task's ``build_generator`` that lacks the argument which fairseq's hub interface gives it."""

    def build(*args: Any, prefix_allowed_tokens_fn: Any = None, **options: Any) -> Any:
        if prefix_allowed_tokens_fn is not None:
            raise UsageError(f"{PREFIXES}: the model's task cannot restrict words; leave it out")
        return build_generator(*args, **options)

    return build
