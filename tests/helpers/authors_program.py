"""Checkpoints as the Luna paper's authors' program saves them, fairseq-apollo, which is fairseq of 2020."""

from argparse import Namespace
from pathlib import Path

import torch

OUR_NAMES = {
    "self_attn_packed_layer_norm": "self_atten_proj_layer_norm",
    "encoder_attn_packed_layer_norm": "encoder_atten_proj_layer_norm",
    "packed_embeddings": "projected_embeddings",
    "sentence_encoder.layernorm_packed_embedding": "sentence_encoder.proj_emb_layer_norm",
    "sentence_encoder.layernorm_embedding": "sentence_encoder.emb_layer_norm",
}


def as_theirs(checkpoint: Path, path: Path, *, arch: str, last_norm: str) -> Path:
    """Write a ``checkpoint`` of ours to ``path`` as their program would have, of a model that they call ``arch``.

    ``last_norm`` is the norm of the packed sequence after the last layer, which they have and nothing reads. Weights of
    norms are stored less 1. The schedule's state is that of their milestones.
    """
    ours = torch.load(checkpoint, weights_only=True)
    size = ours["cfg"]["model"]["encoder_embed_dim"]
    model = {}
    for name, value in ours["model"].items():
        for our, their in OUR_NAMES.items():
            name = name.replace(our, their)
        model[name] = value - 1 if "norm" in name and name.endswith(".weight") else value
    model |= {f"{last_norm}.{parameter}": torch.zeros(size) for parameter in ("weight", "bias")}
    model.pop("encoder.sentence_encoder.version", None)
    [group] = ours["last_optimizer_state"]["param_groups"]
    group["params"] = list(range(len(group["params"]) + 2))
    history = {**ours["optimizer_history"][-1], "lr_scheduler_state": {"lr": 0.1}}
    cfg = {**ours["cfg"]["model"], **ours["cfg"]["task"]}
    flags = {name: value for name, value in cfg.items() if name.isidentifier() and not name.startswith("_")}
    args = Namespace(
        **{**flags, "arch": arch, "task": ours["cfg"]["task"]["_name"], "optimizer": "apollo", "lr": [0.1]}
    )
    kept = {name: ours[name] for name in ("extra_state", "last_optimizer_state")}
    torch.save({"args": args, "model": model, "optimizer_history": [history], **kept}, path)
    return path
