"""Unsupported options of a recorded training are refused in one line; models without a GPU are trained eagerly."""

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from commands import FAMILIES, TRANSFORMER, train
from fairseq_luna.recorded_training import trainer
from fairseq_luna.usage_error import UsageError
from small_training import updates

LUNA = (*FAMILIES["luna"], "--criterion=label_smoothed_cross_entropy", "--optimizer=adam", "--lr=0.01")
REFUSED = {
    "layerdrop": ("--encoder-layerdrop=0.2", "--encoder-layerdrop 0.2"),
    "checkpointing": ("--checkpoint-activations", "--checkpoint-activations: the state"),
    "noise": ("--quant-noise-pq=0.1", "--quant-noise-pq 0.1"),
    "accuracy": ("--report-accuracy", "--report-accuracy"),
    "backend": ("--ddp-backend=slowmo", "--ddp-backend slowmo"),
    "hook": ("--ddp-comm-hook=fp16", "--ddp-comm-hook fp16"),
    "bmuf": ("--use-bmuf", "--use-bmuf"),
    "task": ("--task=translation_lev", "TranslationLevenshteinTask"),
    "criterion": ("--criterion=composite_loss", "CompositeLoss"),
}


@pytest.mark.parametrize(("given", "named"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_recorded_is_refused(given, named, tiny_data, tmp_path):
    if given.startswith("--task"):
        flags = (*LUNA, given, "--noise=full_mask")
    elif given.startswith("--criterion"):
        flags = (*LUNA, given, "--underlying-criterion=cross_entropy")
    else:
        flags = (*LUNA, given)
    with pytest.raises(UsageError) as raised:
        train(tiny_data, tmp_path, *flags, "--record-training", "--max-update=1")
    assert str(raised.value).startswith("--record-training") and named in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("flags", [LUNA, TRANSFORMER], ids=["luna", "transformer"])
def test_without_a_gpu_a_line_says_that_nothing_is_recorded(flags, tiny_data, tmp_path, caplog):
    caplog.set_level("INFO")
    train(tiny_data, tmp_path, *flags, "--record-training", "--max-update=1", "--log-interval=1", "--log-format=json")
    assert [record.message for record in caplog.records if record.name == trainer.__name__] == [
        "--record-training: CUDA graphs need a GPU; every step is computed eagerly"
    ]
    assert len(updates(caplog)) == 1


def test_models_of_this_package_and_of_fairseq_have_the_flag_and_it_is_off():
    for arch, *flags in (
        *(("luna_base",), ("luna_base", "--record-training")),
        *(("transformer_wmt_en_de",), ("transformer_wmt_en_de", "--record-training")),
    ):
        args = options.parse_args_and_arch(options.get_training_parser(), input_args=["data", f"--arch={arch}", *flags])
        assert getattr(convert_namespace_to_omegaconf(args).model, "record_training", False) is bool(flags)
