"""Luna's named architectures; "luna" itself, registered with the model, is the paper's base size, tied, L = 32."""

from ..named_architectures import SIZES, Settings

UNTIED: Settings = {"untie_luna_kv": True}

ARCHITECTURES: dict[str, Settings] = {
    "luna_base": SIZES["base"],
    "luna_base_tied": SIZES["base"],
    "luna_base_untied": UNTIED,
    "luna_16": {"projection_length": 16},
    "luna_16_untied": {"projection_length": 16, **UNTIED},
    "luna_32": {"projection_length": 32},
    "luna_32_untied": {"projection_length": 32, **UNTIED},
    "luna_big": SIZES["big"],
    "luna_iwslt_de_en": SIZES["iwslt_de_en"],
    "luna_tiny": {**SIZES["tiny"], "projection_length": 16},
}
