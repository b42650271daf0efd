"""Luna's named architectures: sizes by the names that fairseq's transformer has for them."""

from ..named_architectures import Settings

UNTIED: Settings = {"untie_luna_kv": True}

BIG: Settings = {
    "encoder_embed_dim": 1024,
    "encoder_ffn_embed_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "dropout": 0.3,
}

IWSLT: Settings = {
    "encoder_ffn_embed_dim": 1024,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}

TINY: Settings = {
    "encoder_embed_dim": 128,
    "encoder_ffn_embed_dim": 256,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "projection_length": 16,
}

# "luna" itself is registered with the model; it and luna_base are the paper's base size, tied, L = 32.
ARCHITECTURES: dict[str, Settings] = {
    "luna_base": {},
    "luna_base_tied": {},
    "luna_base_untied": UNTIED,
    "luna_16": {"projection_length": 16},
    "luna_16_untied": {"projection_length": 16, **UNTIED},
    "luna_32": {"projection_length": 32},
    "luna_32_untied": {"projection_length": 32, **UNTIED},
    "luna_big": BIG,
    "luna_iwslt_de_en": IWSLT,
    "luna_tiny": TINY,
}
