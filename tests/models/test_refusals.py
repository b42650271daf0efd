"""Settings that a model cannot have are refused in one line: the flag, its value, and what to do."""

import pytest

import readers
from fairseq_luna.usage_error import UsageError
from support import build_model

TRANSLATORS, READERS = ("luna", "fastformer", "block", "mixed"), ("luna_roberta", "mixed_roberta")
ONE, RATE = "must be 1 or more", "must be at least 0 and less than 1"
# What families refuse alike: what is said, and the flags with the values that are given.
OF_ENCODERS = {
    ONE: ("--encoder-layers 0", "--encoder-embed-dim 0", "--encoder-ffn-embed-dim -1", "--quant-noise-pq-block-size 0"),
    "must be 1 or more and divide --encoder-embed-dim": ("--encoder-attention-heads 3", "--encoder-attention-heads 0"),
    RATE: (
        *("--dropout 1.5", "--dropout nan", "--attention-dropout 2", "--activation-dropout -1"),
        *("--encoder-layerdrop 1.5", "--quant-noise-pq 2"),
    ),
    "must be layer numbers from 0": ("--encoder-layers-to-keep 0,0", "--encoder-layers-to-keep x"),
    "must be an odd number": ("--attention-kernel-size 4", "--attention-kernel-size -1"),
}
OF_TRANSLATORS = {
    ONE: ("--decoder-layers -1", "--decoder-ffn-embed-dim -1", "--max-source-positions 0", "--max-target-positions -4"),
    "must be 1 or more and divide --decoder-embed-dim": ("--decoder-attention-heads 3", "--decoder-attention-heads 0"),
    "must equal --decoder-embed-dim 32": ("--decoder-input-dim 16", "--decoder-output-dim 8"),
    RATE: ("--decoder-layerdrop -1", "--decoder-layerdrop nan"),
    "must be layer numbers from 0": ("--decoder-layers-to-keep x",),
    "adaptive input is for fairseq's language models; leave it out": ("--adaptive-input",),
    "character inputs are not supported; leave it out": ("--char-inputs",),
    "BASE layers are not supported; leave it out": ("--base-layers 2",),
    "xFormers attention is not supported; leave it out": tuple(
        f"--{side}-xformers-att-config x" for side in ("encoder", "decoder")
    ),
}
OF_READERS = {
    ONE: ("--max-positions 0",),
    RATE: ("--pooler-dropout 1.0",),
    "choose one of cls, mean, attention": ("--pooling maen",),
}
ALIKE = [((*TRANSLATORS, *READERS), OF_ENCODERS), (TRANSLATORS, OF_TRANSLATORS), (READERS, OF_READERS)]
ALIKE += [(TRANSLATORS[1:], {"only luna supports it; leave it out": ("--cross-self-attention",)})]
# By family: how the refusal of a flag begins, which is also what is given, and other flags that the case needs.
NEEDS = {"luna_source_attention": "softmax"}
REFUSED = {
    "luna": {
        "--projection-length 0: must be 1 or more": {},
        "--encoder-projected-attention-heads 5: must be 1 or more and divide": {},
        "--decoder-projected-attention-heads 0: must be 1 or more and divide": {},
        "--decoder-projected-attention-heads 2: with --luna-source-attention softmax the decoder": NEEDS,
        "--decoder-embed-dim 64: must equal --encoder-embed-dim 32": {},
        "--word-dropout 1.0: must be at least 0 and less than 1": {},
        "--luna-source-attention pakced: choose one of packed, softmax": {},
        "--luna-segment-bias 4: only packed cross-attention reads it; leave it out": NEEDS,
        "--luna-segment-bias nan: must be a number such as 4": {},
        "--no-cross-attention: without --cross-self-attention nothing reads": {},
    },
    "fastformer": {
        "--quant-noise-scalar 0.5: cannot go with --fastformer-share-layers": {"fastformer_share_layers": True},
    },
    "block": {
        "--num-blocks -1: must be": {},
        "--decoder-block-size 0: must be": {},
        "--quant-noise-scalar 0.5: cannot go with --share-block-layers": {"share_block_layers": True},
    },
    "mixed": {
        "--attention-window 0: must be 1 or more": {"encoder_self_attention": "local"},
        "--attention-topk 0: must be 1 or more": {"encoder_self_attention": "topk"},
        "--num-hashes 0: must be 1 or more": {"encoder_self_attention": "reformer"},
        "--redraw-features -1: must be 1 or more updates; or 0: never": {"encoder_self_attention": "performer"},
        "--num-features 0: must be 1 or more; leave it out for 64": {"encoder_self_attention": "rfa"},
        "--num-slots 0: must be 1 or more": {"encoder_self_attention": "external"},
        "--num-blocks -1: must be 1 or more, or 0 for the optimum": {"encoder_self_attention": "block"},
        "--fastformer-combine max: choose product, sum or concat": {"encoder_self_attention": "fastformer"},
        "--max-source-positions 20000: synthesizer-random learns a score for each pair": {
            "encoder_self_attention": "synthesizer-random"
        },
        **{
            f"--attention-chunk {value}: must be 1 or more": {"encoder_self_attention": name}
            for name, value in (("sparse", 0), ("bigbird", -1), ("flash", 0))
        },
        "--no-cross-attention: nothing would read the source; leave it out": {},
    },
    "luna_roberta": {
        "--encoder-projected-attention-heads 3: must be 1 or more and divide": {},
        "--projection-length 0: must be 1 or more": {},
        "--word-dropout 1.0: must be at least 0 and less than 1": {},
    },
    "mixed_roberta": {
        "--num-slots 4: is for external (encoder, decoder), linformer (encoder": {"encoder_self_attention": "softmax"},
        "--fastformer-combine sum: is for fastformer": {"encoder_self_attention": "linear"},
    },
    "block_pyramid_classifier": {
        **{
            f"--pyramid-block-sizes {value}: must be numbers of 2 or more, such as 4,8": {}
            for value in ("4,x", "1", "-4", "")
        },
        "--encoder-layers 0: must be 1 or more": {},
        "--encoder-attention-heads 0: must be 1 or more and divide": {},
        "--max-source-positions 0: must be 1 or more": {},
    },
}
CASES = [(family, said, more) for family, cases in REFUSED.items() for said, more in cases.items()]
CASES += [
    (family, f"{given}: {said}", {})
    for families, refused in ALIKE
    for said, flags in refused.items()
    for family in families
    for given in flags
]


def given_in(said):
    """The field that a refusal names, and its value."""
    name, has_value, value = said.partition(":")[0].removeprefix("--").partition(" ")
    for kind in (int, float, str) if has_value else (bool,):
        try:
            return {name.replace("-", "_"): kind(value) if has_value else True}
        except ValueError:
            continue


@pytest.mark.parametrize(("family", "said", "more"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_it_names_the_flag_its_value_and_what_to_do(family, said, more):
    flags = {**given_in(said), **more}
    with pytest.raises(UsageError) as refusal:
        build_model(family, **flags) if family in TRANSLATORS else readers.build(model=family, **flags)
    assert str(refusal.value).startswith(said)
    assert "\n" not in str(refusal.value)
