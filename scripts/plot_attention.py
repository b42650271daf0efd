"""Draw the attention weights of a trained model for one sentence pair.

    python scripts/plot_attention.py checkpoint_best.pt --data data-bin --sentencepiece-model joint.model \\
        --source "A man in an orange hat." --target "Ein Mann mit einem orangefarbenen Hut." \\
        --attention encoder cross --layers 3 --heads 0 1 --output maps.png

Luna's attention has two maps, pack (slots x words) and unpack (words x slots); through (words x words) is their
product. research/2026-11-24-attention-maps.md explains how to read them.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch

from fairseq_luna.command_line import CommandError, Parser, command
from shared import picture

SIDES = ("encoder", "cross", "decoder")  # as in plots/maps.py, which imports fairseq
LUNA_MAPS = ("pack", "unpack", "through")


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="saved by fairseq-train")
    add("--source", required=True, metavar="SENTENCE", help="text, or pieces with spaces between them")
    add("--target", metavar="SENTENCE", help="its translation; default: the model's, by beam search")
    add("--sentencepiece-model", metavar="MODEL", help="default: that beside the data; none: sentences are in pieces")
    add("--data", metavar="FOLDER", help="data-bin with the dictionaries; default: the training's")
    add("--attention", nargs="+", choices=SIDES, default=[], help="default: all that can be drawn")
    add("--layers", nargs="+", type=int, default=[], metavar="N", help="from 0; default: the last")
    add("--heads", nargs="+", type=int, default=[], metavar="N", help="from 0; default: all")
    add("--maps", nargs="+", choices=LUNA_MAPS, default=["pack", "unpack"], help="of Luna; default: pack unpack")
    picture.add_arguments(parser)
    args = parser.parse_args(arguments)
    picture.check_output(args.output, force=args.force)

    import fairseq_luna  # fairseq takes seconds to import; wrong flags are refused before that
    from plots import drawing, maps

    translator = fairseq_luna.load(args.checkpoint, data=args.data, pieces=args.sentencepiece_model)
    pair = sentence_pair(translator, args.source, args.target)
    found = maps.attention_maps(translator.models[0], pair, args.attention, args.layers)
    chosen = [each for each in found if each.kind not in LUNA_MAPS or each.kind in args.maps]
    picture.save(drawing.draw(chosen, args.heads), args.output)
    print(f"{args.output}: {', '.join(f'{each.side} layer {each.layer} {each.kind}' for each in chosen)}")


def sentence_pair(translator: Any, source: str, target: str | None) -> Any:
    """A sentence and its translation, or the model's, as tensors with a word for every token."""
    from plots.maps import Pair

    model, words = translator.models[0], translator.tgt_dict
    source_words, source_tokens = encoded(translator, "--source", source, translator.src_dict, model.encoder)
    if target is None:  # the default length is up to 200 tokens, too many for a picture
        target_tokens = translator.generate([source_tokens], max_len_a=2, max_len_b=10)[0][0]["tokens"]
        target_words = [words[token] for token in target_tokens[:-1]]
    else:
        target_words, target_tokens = encoded(translator, "--target", target, words, model.decoder)
    # EOS is the first word that the decoder reads.
    return Pair(source_tokens[None], target_tokens.roll(1)[None], [*source_words, "</s>"], ["</s>", *target_words])


def encoded(translator: Any, flag: str, text: str, dictionary: Any, side: Any) -> tuple[list[str], torch.Tensor]:
    """The pieces of ``text``, and their tokens with EOS. Raises CommandError for text that ``side`` cannot read."""
    pieces = translator.apply_bpe(translator.tokenize(text)).split()
    if not pieces:
        raise CommandError(f"{flag}: the sentence is empty")
    tokens = dictionary.encode_line(" ".join(pieces), line_tokenizer=str.split, add_if_not_exist=False).long()
    if 2 * int(tokens.eq(dictionary.unk()).sum()) > len(pieces):
        raise CommandError(f"{flag}: most words are not in the dictionary; give --sentencepiece-model, or its pieces")
    if len(tokens) > side.max_positions():
        raise CommandError(f"{flag}: {len(tokens)} tokens, but the model reads at most {side.max_positions()}")
    return pieces, tokens


if __name__ == "__main__":
    sys.exit(main())
