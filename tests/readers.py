"""Small RoBERTas for the tests of this folder."""

from argparse import Namespace

import torch
from fairseq.models import MODEL_REGISTRY

from fairseq_luna.models.mixed.attentions import ATTENTIONS
from support import PAD, translation_task

SMALL = {
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "max_positions": 64,
    "projection_length": 4,
}
PRENORM = {"encoder_normalize_before": True}
VARIANTS = {
    "luna": {},
    "luna-untied": {"untie_luna_kv": True},
    "luna-prenorm": PRENORM,
    "luna-fixed-length": {"fix_projection_length": True, "encoder_projected_attention_heads": 4},
    "luna-convolution": {"luna_kernel_size": 3, "word_dropout": 0.1},
    "luna-checkpointed": {"checkpoint_activations": True},
    "luna-untied-embeddings": {"untie_weights_roberta": True, "no_token_positional_embeddings": True},
    **{f"mixed-{name}": {"encoder_self_attention": name} for name in ATTENTIONS},
    "mixed-prenorm": {"encoder_self_attention": "fastformer", "attention_kernel_size": 3, **PRENORM},
    "mixed-checkpointed": {"encoder_self_attention": "block", "checkpoint_activations": True},
}
HEAD = "sentence_classification_head"
POOLINGS = ["cls", "mean", "attention"]


def build(variant="luna", *, model=None, seed=0, **flags):
    """A small RoBERTa of a variant, or of the registered ``model``, with a head for three classes."""
    torch.manual_seed(seed)
    chosen = model or variant.split("-")[0] + "_roberta"
    own = {} if model else VARIANTS[variant]
    built = MODEL_REGISTRY[chosen].build_model(Namespace(**{**SMALL, **own, **flags}), translation_task())
    built.register_classification_head(HEAD, num_classes=3)
    return built


def classify(model, texts):
    return model(texts, src_lengths=texts.ne(PAD).sum(1), classification_head_name=HEAD)[0]
