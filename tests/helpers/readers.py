"""Small models that read texts: RoBERTas with other attentions, and the pyramid."""

from argparse import Namespace

import torch
from fairseq.models import MODEL_REGISTRY

from support import PAD, translation_task
from variants import READERS

PYRAMID = {"family": "block_pyramid_classifier", "pyramid_block_sizes": "2,4", "encoder_layers": 3}
PYRAMIDS = {
    "pyramid": PYRAMID,
    "pyramid-prenorm": {**PYRAMID, "encoder_normalize_before": True},
    "pyramid-learned-positions": {**PYRAMID, "encoder_learned_pos": True},
    "pyramid-no-positions": {**PYRAMID, "no_token_positional_embeddings": True},
    "pyramid-one-branch": {**PYRAMID, "pyramid_block_sizes": "8", "activation_fn": "gelu"},
    "pyramid-mean-at-the-end": {**PYRAMID, "encoder_layers": 1},
}
EVERY_READER = {**READERS, **PYRAMIDS}
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
HEAD = "sentence_classification_head"
POOLINGS = ["cls", "mean", "attention"]


def build(variant="luna", *, model=None, seed=0, **flags):
    """A small reader of a variant, or of the registered ``model``, with a head for three classes."""
    torch.manual_seed(seed)
    chosen = {"family": model} if model else EVERY_READER[variant]
    args = Namespace(**{**SMALL, **chosen, **flags})
    built = MODEL_REGISTRY[args.family].build_model(args, translation_task())
    built.register_classification_head(HEAD, num_classes=3)
    return built


def classify(model, texts):
    return model(texts, src_lengths=texts.ne(PAD).sum(1), classification_head_name=HEAD)[0]
