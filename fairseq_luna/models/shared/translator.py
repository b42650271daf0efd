"""fairseq's hub interface: a trained model as an object that translates text."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy, deepcopy
from inspect import signature
from os import PathLike
from typing import Any, NoReturn

from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor, nn

from ... import silenced_logs
from ...option_names import checks_names
from ...search_options import check_numbers, check_search, one_or_several
from ...subwords import SPACE, is_blank, subword_marker
from ...translation import EMPTY, Translation
from ...usage_error import UnreadableText, UsageError
from .alignments import Pairs, replacements, with_replacements, word_pairs, words_of_pieces
from .decoder import CausalDecoder
from .translator_options import INSTEAD, check_option_names

PREFIXES = "prefix_allowed_tokens_fn"
# Of translate(), the arguments that fairseq's generation does not know.
OF_TEXT = ("self", "sentences", "beam", "verbose", "nbest", "scores", "alignments", "replace_unk")


class TorchTranslator(GeneratorHubInterface):
    """A trained model, or an ensemble, that translates text. Threads can share one; it cannot be pickled or copied.

    It is fairseq's hub interface, whose most useful methods besides ``translate`` are:

    - ``generate(tokens, beam=5, **options)``: for each sentence of ``encode(text)`` its hypotheses, the best first,
      with ``tokens``, ``score``, ``positional_scores`` and, with ``print_alignment="hard"``, ``alignment``. Options are
      ``nbest``, ``batch_size``, ``max_tokens`` and the options of fairseq's generation.
    - ``encode(text)``, ``decode(tokens)``: through the subword model. ``to("cuda")``, ``half()``: as any module.
    """

    def __init__(self, cfg: Any, task: Any, models: Sequence[Any]) -> None:
        super().__init__(cfg, task, models)
        if PREFIXES not in signature(task.build_generator).parameters:
            task.build_generator = _without_prefixes(task.build_generator)
        generator = task.build_generator(self.models, cfg.generation)
        # The end-of-sentence symbol and the language symbols, as in fairseq-generate.
        self.marks = getattr(generator, "symbols_to_strip_from_output", {generator.eos})
        self.source_mark, self.target_mark = subword_marker(self.src_dict), subword_marker(self.tgt_dict)
        self.reads_pieces = self.source_mark == SPACE

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a loaded model can be neither pickled nor copied, because fairseq's task cannot: let each process call"
            " fairseq_luna.load; threads can share one; state_dict() has the parameters"
        )

    @checks_names(INSTEAD["translate"])
    def translate(
        self,
        sentences: str | Iterable[str],
        beam: int | None = None,
        verbose: bool = False,
        *,
        nbest: int | None = None,
        scores: bool = False,
        alignments: bool = False,
        replace_unk: bool | str | PathLike[str] | None = None,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        lenpen: float | None = None,
        unkpen: float | None = None,
        unnormalized: bool | None = None,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
        min_len: int | None = None,
        match_source_len: bool | None = None,
        no_repeat_ngram_size: int | None = None,
        sampling: bool | None = None,
        sampling_topk: int | None = None,
        sampling_topp: float | None = None,
        temperature: float | None = None,
        diverse_beam_groups: int | None = None,
        diverse_beam_strength: float | None = None,
        diversity_rate: float | None = None,
        prefix_allowed_tokens_fn: Callable[[int, Tensor], Sequence[int]] | None = None,
        inference_step_args: dict[str, Any] | None = None,
        skip_invalid_size_inputs: bool = False,
    ) -> Any:
        """Translate a text, or several.

        An option that is None has the value that ``load`` was given, else the default that is named here. Text that
        is blank becomes "", and so does one that is too long with ``skip_invalid_size_inputs``.

        Args:
            sentences: a text, or any iterable of texts.
            beam: candidates of the search (5): more is slower, and better up to about 5. In sampling, translations that
                are drawn.
            verbose: log every hypothesis, as fairseq does.
            nbest: number of translations to return of each text, the best first; at most ``beam``.
            scores: return a :class:`~fairseq_luna.translation.Translation` with its score in place of a text.
            alignments: the same, with the pairs of a word of the source and a word of the translation, by the last
                layer's cross-attention.
            replace_unk: put the word of the source that is aligned in place of a word that the model does not know,
                ``<unk>``: True, or a file with a word and its translation in each line.
            batch_size, max_tokens: texts, and pieces with padding, in a batch; one of them alone replaces the
                training's.
            lenpen: length penalty (1): above 1 prefers longer translations.
            unkpen: penalty of unknown words (0): above 0 makes them rarer.
            unnormalized: compare log-probabilities that are not divided by the length.
            max_len_a, max_len_b: longest translation: a (0) pieces for each source piece, plus b (200).
            min_len: pieces of a translation at least, with the end-of-sentence symbol (1).
            match_source_len: a translation has as many pieces as its source.
            no_repeat_ngram_size: no sequence of this many pieces occurs twice (0: they may).
            sampling: draw tokens at random instead of searching; ``torch.manual_seed`` makes that repeatable.
            sampling_topk, sampling_topp: draw from the k likeliest tokens, or from the fewest whose probability is p.
            temperature: logits are divided by it (1): above 1 makes unlikely tokens likelier.
            diverse_beam_groups, diverse_beam_strength: number of groups, which the search keeps different (0.5).
            diversity_rate: a search that lowers the scores of siblings of a hypothesis by this much.
            prefix_allowed_tokens_fn: gets the index of the text and the tokens so far, and returns the tokens that
                may follow.
            inference_step_args: of the task's ``inference_step``.
            skip_invalid_size_inputs: texts that are too long become "".

        Returns:
            A text for a text, a list for several. With ``nbest`` each text's result is a list of translations.

        Raises:
            TypeError: there is no such option, or a sentence is not a text.
            UnreadableText: a text is longer than the model reads.
            UsageError: the value of an option cannot be, or options do not go together.
        """
        options = {name: value for name, value in dict(locals()).items() if name not in OF_TEXT and value is not None}
        beam = self.cfg.generation.beam if beam is None else beam
        if replace_unk is None:
            replace_unk = self.cfg.generation.replace_unk
        words = None if replace_unk is None or replace_unk is False else replacements(replace_unk)
        options |= {} if nbest is None else {"nbest": nbest}
        options |= {"print_alignment": "hard"} if alignments or words is not None else {}
        ranked_translations = self._ranked(one_or_several(sentences), beam, verbose, options, words)
        if not alignments:
            ranked_translations = [[each._replace(alignment=None) for each in ranked] for ranked in ranked_translations]
        results: list[Any] = [
            ranked if scores or alignments else [each.text for each in ranked] for ranked in ranked_translations
        ]
        if nbest is None:
            results = [best for best, *_ in results]
        return results[0] if isinstance(sentences, str) else results

    def sample(self, sentences: Any, beam: int = 1, verbose: bool = False, **options: Any) -> Any:
        """:meth:`translate` with fairseq's name, and a beam of 1."""
        return self.translate(sentences, beam, verbose, **options)

    def _ranked(
        self, texts: Sequence[str], beam: int, verbose: bool, options: dict[str, Any], words: dict[str, str] | None
    ) -> list[list[Translation]]:
        """The translations of each text, the best first; ``words`` replace words that the model does not know."""
        cut = ("" if is_blank(text) else self.apply_bpe(self.tokenize(text)) for text in texts)
        pieces = {place: some for place, some in enumerate(cut) if not is_blank(some)}
        tokens = {place: self.binarize(some) for place, some in pieces.items()}
        if options.get("skip_invalid_size_inputs"):
            tokens = {place: some for place, some in tokens.items() if len(some) <= self.max_positions[0]}
        if not tokens:
            return [[EMPTY] for _ in texts]
        places = list(tokens)
        if allowed := options.get(PREFIXES):
            options = {**options, PREFIXES: lambda sentence, so_far: allowed(places[sentence], so_far)}
        results = self.generate(list(tokens.values()), beam, verbose, **options)
        shift = self._pieces_before(tokens[places[0]]) if "print_alignment" in options else 0
        ranked = {
            place: [self._translation(each, pieces[place].split(), shift, words) for each in hypotheses]
            for place, hypotheses in zip(places, results, strict=True)
        }
        return [ranked.get(place, [EMPTY]) for place in range(len(texts))]

    def _translation(
        self, hypothesis: Mapping[str, Any], source: Sequence[str], shift: int, words: dict[str, str] | None
    ) -> Translation:
        """One of fairseq's hypotheses as text.

        Args:
            source: pieces of the text.
            shift: the number of language symbols before them.
            words: see :func:`.alignments.with_replacements`; None: unknown words stay.
        """
        unsaid = {*self.marks, self.tgt_dict.bos(), self.tgt_dict.eos()}
        kept = [place for place, token in enumerate(hypothesis["tokens"].tolist()) if token not in unsaid]
        target = [self.tgt_dict[hypothesis["tokens"][place]] for place in kept]
        places = {place: number for number, place in enumerate(kept)}
        pairs: Pairs = [
            (source_place - shift, places[target_place])
            for source_place, target_place in hypothesis["alignment"]  # an empty tensor where it was not asked for
            if target_place in places and 0 <= source_place - shift < len(source)
        ]
        if words is not None:
            target = with_replacements(target, source, pairs, words, self.tgt_dict.unk_string())
        aligned = words_of_pieces(source, self.source_mark), words_of_pieces(target, self.target_mark)
        text = self.detokenize(self.remove_bpe(" ".join(target)))
        return Translation(text, float(hypothesis["score"]), word_pairs(pairs, *aligned))

    def _pieces_before(self, tokens: Tensor) -> int:
        """The number of language symbols that the task puts before a sentence."""
        read = self.task.build_dataset_for_inference([tokens], [len(tokens)])[0]["source"]
        return len(read) - len(tokens)

    def generate(
        self,
        tokenized_sentences: Any,
        beam: int = 5,
        verbose: bool = False,
        *,
        nbest: int | None = None,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> Any:
        """See :class:`fairseq.hub_utils.GeneratorHubInterface`, whose models cannot be asked for alignments later.

        Args:
            nbest: hypotheses of each sentence; None: all, which are ``beam``.
            batch_size, max_tokens: as in :meth:`translate`.

        Raises:
            TypeError: there is no such option.
            UnreadableText: a sentence is longer than the model reads.
            UsageError: a number of the search cannot be, or options do not go together.
        """
        call_options = {"nbest": nbest, "batch_size": batch_size, "max_tokens": max_tokens}
        if isinstance(tokenized_sentences, Tensor) and tokenized_sentences.dim() == 1:
            return self.generate([tokenized_sentences], beam, verbose, **call_options, **options)[0]
        check_option_names(
            "generate", options, PREFIXES, "inference_step_args", "skip_invalid_size_inputs", *call_options
        )
        check_numbers({"beam": beam, **call_options, **options})
        check_search(
            {**self.cfg.generation, "nbest": nbest, "beam": beam, **options}, vocabulary_size=len(self.tgt_dict)
        )
        if batch_size or max_tokens:
            return self._with_batches(max_tokens, batch_size).generate(
                tokenized_sentences, beam, verbose, nbest=nbest, **options
            )
        self._check_lengths(tokenized_sentences, skipped=bool(options.get("skip_invalid_size_inputs")))
        aligned = bool(options.get("print_alignment", self.cfg.generation.print_alignment))
        try:
            with nullcontext() if verbose else silenced_logs.silence_fairseq():  # it logs what is verbose
                translator = self.with_alignment(aligned)
                results = GeneratorHubInterface.generate(translator, tokenized_sentences, beam, verbose, **options)
        except (AssertionError, OverflowError) as error:
            if isinstance(error, AssertionError) and "max_len" not in str(error):
                raise
            if isinstance(error, OverflowError):
                raise UsageError(f"max_len_a, lenpen: too large: {error}") from error
            effective_options = {**self.cfg.generation, **options}
            most = ", ".join(f"{name} {effective_options[name]}" for name in ("max_len_a", "max_len_b"))
            raise UsageError(
                f"{most}: allow fewer pieces here than min_len {effective_options['min_len']} asks for"
            ) from error
        return [hypotheses[:nbest] for hypotheses in results]

    def _check_lengths(self, sentences: Iterable[Tensor], *, skipped: bool) -> None:
        """Raises UnreadableText if one of the ``sentences`` is longer than the model reads, unless such are skipped."""
        longest = self.max_positions[0]
        for tokens in sentences:
            if len(tokens) > longest and not skipped:
                begin = self.src_dict.string(tokens[:5])
                raise UnreadableText(
                    f"a sentence has {len(tokens)} pieces, the model reads at most {longest}: {begin} ...; cut it, or"
                    " give more max_source_positions (--max-source-positions), unless positions are learned"
                )

    def _with_batches(self, max_tokens: int | None, batch_size: int | None) -> "TorchTranslator":
        """The same translator with batches of another size; threads may use this one meanwhile."""
        other = shallow_copy(self)
        other.cfg = deepcopy(self.cfg)
        other.cfg.dataset.max_tokens, other.cfg.dataset.batch_size = max_tokens, batch_size
        return other

    def with_alignment(self, return_weights: bool) -> "TorchTranslator":
        """A translator with the same parameters, whose decoders return cross-attention weights if ``wanted``.

        Each call has one of its own, so that threads that share a model do not change each other's results.
        """
        models = []
        for model in self.models:
            if isinstance(model.decoder, CausalDecoder):
                decoder = copy(model.decoder)
                decoder.need_attn = return_weights
                model = with_child(model, "decoder", decoder)
            models.append(model)
        return with_child(self, "models", nn.ModuleList(models))

    def apply_bpe(self, sentence: str) -> str:
        """The pieces of ``sentence``, with spaces between them. Raises UnreadableText if nothing can cut it."""
        if self.reads_pieces and self.bpe is None and not (SPACE in sentence or is_blank(sentence)):
            raise UnreadableText(
                f"{' '.join(sentence.split()[:5])} ...: has no pieces of SentencePiece, which the model reads, and no"
                " subword model was given; load with pieces= (--pieces)"
            )
        return super().apply_bpe(sentence)

    def unknown_tokens(self, sentence: str) -> tuple[int, int]:
        """The numbers of unknown tokens and of all tokens of ``sentence``, without the end-of-sentence symbol."""
        if is_blank(sentence):
            return 0, 0
        tokens = self.encode(sentence)[:-1]
        return int(tokens.eq(self.src_dict.unk()).sum()), len(tokens)

    def string(self, tokens: Tensor) -> str:
        """The words of the target, without end-of-sentence and language symbols."""
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
    new = shallow_copy(module)
    new._modules = module._modules | {name: child}
    return new


def shallow_copy(module: Any) -> Any:
    """A module with the same attributes; :func:`copy.copy` is refused for a translator."""
    new = object.__new__(type(module))
    new.__dict__.update(module.__dict__)
    return new


def _without_prefixes(build_generator: Callable[..., Any]) -> Callable[..., Any]:
    """A task's ``build_generator`` that lacks the argument which fairseq's hub interface gives it."""

    def build(*args: Any, prefix_allowed_tokens_fn: Any = None, **options: Any) -> Any:
        if prefix_allowed_tokens_fn is not None:
            raise UsageError(f"{PREFIXES}: the model's task cannot restrict words; leave it out")
        return build_generator(*args, **options)

    return build
