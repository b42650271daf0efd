"""The options of fairseq's generation: which of them translating takes, and what to do instead of the others."""

from collections.abc import Iterable
from dataclasses import fields

from fairseq.dataclass.configs import GenerationConfig

from ...option_names import unknown_option

_OBSOLETE = "fairseq does not read it any more"
_SPEECH = "only translation of speech reads it"
_LANGUAGE_MODEL = "only fairseq-generate reads a language model"
_AT_LOADING = "it is an option of load()"
# Options of fairseq's generation without an effect here.
UNREAD = {
    **{"sacrebleu": "give the translations to fairseq-luna score", "decoding_format": "no translation model reads it"},
    **{
        "no_early_stop": _OBSOLETE,
        "no_beamable_mm": _OBSOLETE,
        "lm_path": _LANGUAGE_MODEL,
        "lm_weight": _LANGUAGE_MODEL,
    },
    **dict.fromkeys(("beam_mt", "lenpen_mt", "max_len_a_mt", "max_len_b_mt"), _SPEECH),
    "seed": "call torch.manual_seed before, which makes sampling repeatable",
    "prefix_size": 'give inference_step_args={"prefix_tokens": ...}, one sentence a call',
}
OF_LOADING = {
    **dict.fromkeys(("retain_dropout", "retain_dropout_modules", "print_step"), _AT_LOADING),
    **dict.fromkeys(
        ("retain_iter_history", *(f.name for f in fields(GenerationConfig) if "iter_decode" in f.name)), _AT_LOADING
    ),
}
# By function, what to do instead of an option that others have.
INSTEAD = {
    "load": {**UNREAD, "nbest": "it is an option of translate()"},
    "generate": {
        **UNREAD,
        **OF_LOADING,
        "replace_unk": "it is an option of translate(), which has the text",
        "scores": "each hypothesis has its score",
        "alignments": 'give print_alignment="hard"; each hypothesis has the alignment of its pieces',
    },
    "translate": {
        **UNREAD,
        **OF_LOADING,
        "print_alignment": "give alignments=True, for words; generate() has it for pieces",
        "constraints": "generate() has it, with inference_step_args",
        "score_reference": "give scores=True, for the scores of the translations",
        **dict.fromkeys(("device", "fp16", "bf16", "data", "pieces", "source_lang", "target_lang"), _AT_LOADING),
    },
}
GENERATION = {field.name for field in fields(GenerationConfig)}


def check_option_names(function: str, keywords: Iterable[str], *known: str) -> None:
    """Raises TypeError if one of ``keywords`` of ``function`` is neither of fairseq's generation nor known."""
    instead: dict[str, str] = INSTEAD[function]
    names = {*GENERATION, *known} - instead.keys()
    for name in keywords:
        if name not in names:
            raise unknown_option(function, name, names, instead)
