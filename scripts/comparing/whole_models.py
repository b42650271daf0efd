"""Whole models of Luna with the parameters of the authors' checkpoints."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from comparing.recorded import Row, golden, worst
from fairseq_luna.commands.dictionaries import joint_dictionary
from fairseq_luna.models.luna import LunaModel
from fairseq_luna.models.luna.checkpoint_names import translate
from fairseq_luna.models.roberta import LunaRobertaModel

PAD = 1


def whole_model(name: str) -> Iterator[Row]:
    """A Luna encoder-decoder with the authors' checkpoint."""
    recorded = golden(f"{name}.pt")
    model = LunaModel.build_model(Namespace(**recorded["config"]), task(recorded["vocab"])).eval()
    model.load_state_dict(dict(recorded["state_dict"]), strict=True)
    encoder_out = model.encoder(recorded["src_tokens"])
    prefix = recorded["prev_output_tokens"]
    logits, _ = model.decoder(prefix, encoder_out=encoder_out)
    F.cross_entropy(logits.flatten(0, 1), recorded["target"].flatten(), ignore_index=PAD).backward()

    source_words, words = recorded["src_tokens"].ne(PAD).t(), prefix.ne(PAD)
    yield (
        name,
        "encoder output",
        worst(encoder_out["encoder_out"][0][source_words], recorded["encoder_out"][source_words]),
    )
    yield name, "logits", worst(logits[words], recorded["logits"][words])
    gradients = dict(recorded["grads"])
    translate(gradients)
    ours = dict(model.named_parameters())
    yield name, "gradients of the parameters", max(worst(ours[key].grad, value) for key, value in gradients.items())
    stepped = step_by_step(model, prefix, encoder_out)
    yield name, "logits, generated step by step", worst(stepped[words], recorded["incremental_logits"][words])


def since_2023() -> Iterator[Row]:
    """Encoder-decoders of the authors' program of 2023, which stores the weights of layer norms less 1."""
    for name, recorded in golden("luna_norm_weights_minus_one.pt").items():
        words = Namespace(
            source_dictionary=joint_dictionary(recorded["src_symbols"] + 4),
            target_dictionary=joint_dictionary(recorded["tgt_symbols"] + 4),
        )
        model = LunaModel.build_model(Namespace(**recorded["config"]), words).eval()
        model.load_state_dict(dict(recorded["state_dict"]), strict=True)
        encoder_out = model.encoder(recorded["src"])
        logits, _ = model.decoder(recorded["prev"], encoder_out=encoder_out)
        stepped = step_by_step(model, recorded["prev"], encoder_out)
        source_words, real = recorded["src"].ne(PAD).t(), recorded["prev"].ne(PAD)
        out = encoder_out["encoder_out"][0]
        yield name, "encoder output", worst(out[source_words], recorded["encoder_out"][source_words])
        yield name, "logits", worst(logits[real], recorded["logits"][real])
        yield name, "logits, generated step by step", worst(stepped[real], recorded["incremental"][real])


def readers() -> Iterator[Row]:
    """RoBERTa with Luna's encoder, with the head that has a counterpart."""
    for name, recorded in golden("luna_roberta.pt").items():
        untied = recorded["config"].get("untie_weights_luna", False)
        config = Namespace(**recorded["config"], untie_weights_roberta=untied, load_checkpoint_heads=True)
        words = joint_dictionary(len(recorded["state_dict"]["encoder.lm_head.bias"]))
        model = LunaRobertaModel.build_model(config, Namespace(source_dictionary=words))
        model.load_state_dict(dict(recorded["state_dict"]), strict=True)
        tokens = recorded["tokens"]
        real = tokens.ne(PAD)
        (features, _), (logits, _) = (model.eval()(tokens, features_only=only) for only in (True, False))
        yield f"RoBERTa, {name}", "features", worst(features[real], recorded["features"][real])
        yield f"RoBERTa, {name}", "logits", worst(logits[real], recorded["logits"][real])
        [head] = model.classification_heads
        classes, _ = model(tokens, classification_head_name=head)
        yield f"RoBERTa, {name}", "classes", worst(classes, recorded["heads"][head])


def task(words: int) -> Namespace:
    """The part of a fairseq task that building a model needs."""
    dictionary = joint_dictionary(words + 4)
    return Namespace(source_dictionary=dictionary, target_dictionary=dictionary)


@torch.no_grad()
def step_by_step(model: Any, prefix: Tensor, encoder_out: Any) -> Tensor:
    state: dict[str, Any] = {}
    steps = range(1, prefix.shape[1] + 1)
    return torch.cat([model.decoder(prefix[:, :t], encoder_out, state)[0] for t in steps], dim=1)
