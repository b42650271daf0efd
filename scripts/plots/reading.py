"""Loading the model of a checkpoint, and encoding a sentence pair for it."""

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import GenerationConfig

import fairseq_luna.models  # noqa: F401 (applies the patches, registers the models)
from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.subwords import SPACE, mark_of, says_nothing
from fairseq_luna.usage_error import UsageError
from plots.attention_map import Pair

EOS = "</s>"


def load(checkpoint: Path, data: Path | None) -> tuple[Any, Any]:
    """The model of ``checkpoint`` in evaluation mode, and its task.

    Args:
        checkpoint: saved by fairseq-train.
        data: the folder with the dictionaries; None: the training's.

    Raises:
        CommandError: one of them cannot be read, or the model is not an encoder-decoder.
    """
    if not checkpoint.is_file():
        raise CommandError(f"{checkpoint}: there is no such file")
    overrides: dict[str, Any] = {"eval_bleu": False}  # it would need the training's tokenizer
    if data is not None:
        if not any(data.glob("dict.*.txt")):
            raise CommandError(f"--data {data}: has no dict.*.txt; --data names the folder with the dictionaries")
        overrides["data"] = str(data)
    try:
        models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    except OSError as error:
        raise CommandError(f"{error}; --data names the folder with the dictionaries") from error
    except UsageError as error:
        raise CommandError(str(error)) from error
    model = models[0]
    if not (hasattr(model, "encoder") and hasattr(model, "decoder") and getattr(task, "source_dictionary", None)):
        raise CommandError(f"{checkpoint}: its model is not a translation model")
    return model.eval(), task


def sentence_pair(model: Any, task: Any, source: str, target: str | None, pieces: Path | None) -> Pair:
    """A sentence and its translation as tensors, with a word for every token.

    Args:
        source, target: pieces between spaces, or text if there is a SentencePiece model; without ``target`` the model
            translates.
        pieces: a SentencePiece model.

    Raises:
        CommandError: a sentence is empty, too long, or mostly not in the dictionary.
    """
    source_words, tokens = source_sentence(model, task, source, pieces)
    if target is None:
        target_tokens = _translation(model, task, tokens)
        target_words = [task.target_dictionary[token] for token in target_tokens[0, :-1]]
    else:
        target_words = _words("--target", target, pieces, task.target_dictionary)
        target_tokens = _tokens("--target", target_words, task.target_dictionary, model.decoder.max_positions())
    return Pair(
        source=tokens,
        prefix=target_tokens.roll(1, dims=1),  # EOS first
        source_words=[*source_words, EOS],
        prefix_words=[EOS, *target_words],
        predicted_words=[*target_words, EOS],
    )


def source_sentence(model: Any, task: Any, source: str, pieces: Path | None) -> tuple[list[str], torch.Tensor]:
    """The words of a sentence, and its tokens ``(1, S)``; arguments and errors are those of :func:`sentence_pair`."""
    words = _words("--source", source, pieces, task.source_dictionary)
    return words, _tokens("--source", words, task.source_dictionary, model.encoder.max_positions())


def _words(flag: str, sentence: str, pieces: Path | None, dictionary: Any) -> list[str]:
    if pieces is not None:
        import sentencepiece

        try:
            processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
        except (OSError, RuntimeError) as error:
            raise CommandError(
                f"--sentencepiece-model {pieces}: is no SentencePiece model, or cannot be read"
            ) from error
        sentence = " ".join(processor.encode(sentence, out_type=str))
    if says_nothing(sentence):
        raise CommandError(f"{flag}: the sentence is empty")
    if SPACE not in sentence and mark_of(dictionary) == SPACE:
        raise CommandError(f"{flag}: is not in pieces, which the model reads; give --sentencepiece-model")
    return sentence.split()


def _tokens(flag: str, words: list[str], dictionary: Any, longest: int) -> torch.Tensor:
    line = dictionary.encode_line(" ".join(words), add_if_not_exist=False, line_tokenizer=str.split).long()
    unknown = [word for word, token in zip(words, line, strict=False) if token == dictionary.unk()]
    if 2 * len(unknown) > len(words):
        raise CommandError(
            f"{flag}: {len(unknown)} of {len(words)} words are not in the dictionary; "
            "give the pieces that the model was trained on, or text with --sentencepiece-model"
        )
    if unknown:
        print(f"{flag}: not in the dictionary, and read as unknown: {' '.join(unknown)}", file=sys.stderr)
    if len(line) > longest:
        raise CommandError(
            f"{flag}: {len(line)} tokens, but the model reads at most {longest}; give a shorter sentence"
        )
    return line[None]


def _translation(model: Any, task: Any, source: torch.Tensor) -> torch.Tensor:
    """The best hypothesis of fairseq's beam search: ``(1, T)``, ending in EOS.

    The length is limited to twice the source's plus 10: the default is up to 200 tokens, too many for a picture.
    """
    flags = GenerationConfig(max_len_a=2, max_len_b=10)
    generator = task.build_generator([model], Namespace(**vars(flags)))
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.shape[1]])}}
    return task.inference_step(generator, [model], sample)[0][0]["tokens"][None]
