"""Every family of encoder-decoders and of readers with each of its flags, and every mode of Apollo, for checks."""

from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, available_in, fields_for

PRENORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}

FAMILIES = {
    "luna": {
        "tied": {},
        "untied-elu": {"untie_luna_kv": True, "luna_activation": "elu"},
        "prenorm": PRENORM,
        "fixed-length": {"fix_projection_length": True},
        "learned-positions": {"encoder_learned_pos": True, "decoder_learned_pos": True, "layernorm_embedding": True},
        "packed-heads": {"encoder_projected_attention_heads": 2, "decoder_projected_attention_heads": 8},
        "segment-bias": {"luna_segment_bias": 4.0},
        "softmax-source": {"luna_source_attention": "softmax"},
        "softmax-source-prenorm": {"luna_source_attention": "softmax", "untie_luna_kv": True, **PRENORM},
        "convolution": {"attention_kernel_size": 5},
        "convolution-prenorm-untied": {"attention_kernel_size": 3, "untie_luna_kv": True, **PRENORM},
        "convolution-cross-self": {"attention_kernel_size": 3, "cross_self_attention": True, "untie_luna_kv": True},
        "cross-self": {"cross_self_attention": True},
        "cross-self-only": {"cross_self_attention": True, "no_cross_attention": True},
        "checkpointed": {"checkpoint_activations": True},
        "quant-noise": {"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 4},
    },
    "fastformer": {
        "default": {},
        "prenorm": PRENORM,
        "sum-global": {"fastformer_combine": "sum", "fastformer_residual": "global-query", "fastformer_share": "none"},
        "concat-one": {"fastformer_combine": "concat", "fastformer_share": "query-key-value"},
        "share-layers": {"fastformer_share_layers": True},
        "convolution": {"attention_kernel_size": 5},
        "convolution-prenorm-shared": {"attention_kernel_size": 3, "fastformer_share_layers": True, **PRENORM},
        "checkpointed": {"checkpoint_activations": True},
    },
    "block": {
        "default": {},
        "prenorm": PRENORM,
        "three-blocks": {"num_blocks": 3, "share_block_levels": True, "decoder_block_size": 3},
        "unordered-mean": {"unordered_blocks": "mean"},
        "unordered-sum": {"unordered_blocks": "sum", "share_block_levels": True},
        "share-layers": {"share_block_layers": True},
        "convolution": {"attention_kernel_size": 5},
        "convolution-unordered-shared": {
            "attention_kernel_size": 3,
            "unordered_blocks": "mean",
            "share_block_layers": True,
        },
        "random": {"random_blocks": True},
        "checkpointed": {"checkpoint_activations": True},
    },
    "mixed": {
        **{name: fields_for(name) for name in ATTENTIONS},
        # Several clusters: eager mode takes a shorter way for a single one, which rounds in another order than a graph.
        "routing": {**fields_for("routing"), "attention_window": 3},
        "convolution-prenorm": {**fields_for("fastformer"), "attention_kernel_size": 3, **PRENORM},
    },
}
VARIANTS = {
    f"{family}-{name}": {"family": family, **flags}
    for family, variants in FAMILIES.items()
    for name, flags in variants.items()
}
READER_FAMILIES = {
    "luna_roberta": {
        "luna": {},
        "luna-untied": {"untie_luna_kv": True},
        "luna-prenorm": {"encoder_normalize_before": True},
        "luna-fixed-length": {"fix_projection_length": True, "encoder_projected_attention_heads": 4},
        "luna-convolution": {"attention_kernel_size": 3, "word_dropout": 0.1},
        "luna-checkpointed": {"checkpoint_activations": True},
        "luna-untied-embeddings": {"untie_weights_roberta": True, "no_token_positional_embeddings": True},
    },
    "mixed_roberta": {
        **{f"mixed-{name}": {"encoder_self_attention": name} for name in available_in("encoder")},
        "mixed-prenorm": {
            "encoder_self_attention": "fastformer",
            "attention_kernel_size": 3,
            "encoder_normalize_before": True,
        },
        "mixed-checkpointed": {"encoder_self_attention": "block", "checkpoint_activations": True},
    },
}
READERS = {
    name: {"family": family, **flags}
    for family, variants in READER_FAMILIES.items()
    for name, flags in variants.items()
}
APOLLO = {
    "default": {},
    **{
        f"{rebound}-{decay}": {"rebound": rebound, "weight_decay": 0.1, "weight_decay_type": decay}
        for rebound in ("constant", "belief")
        for decay in ("L2", "decoupled", "stable")
    },
}
