"""The fast path of fairseq's transformer encoder in evaluation, which calls one function of torch for each layer."""

from types import SimpleNamespace
from typing import Any

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method


class FastPathWithoutMaskType(Patch):
    """A trained transformer cannot encode padded sentences in evaluation: ``Mask Type should be defined``.

    fairseq 0.12.2 evaluates post-norm layers with ReLU or GELU by ``torch._transformer_encoder_layer_fwd``, if they
    were read from a checkpoint. Later versions of torch need to be told what its mask stands for, which fairseq does
    not do. fairseq-fixed 0.12.3.1 has no such path. With this patch the layers are evaluated as they are trained, whose
    results differ from the fast path's by rounding.
    """

    name = "encoder-fast-path"
    summary = "a trained transformer could not encode padded sentences; its encoder is evaluated as it is trained"

    def is_needed(self) -> bool:
        """Whether the fast path fails with one step that is padding."""
        try:
            TransformerEncoderLayerBase.forward(_layer_of_zeros(), torch.zeros(1, 2, 2), torch.tensor([[False, True]]))
        except AttributeError:  # of the other path: there is no fast one
            return False
        except RuntimeError:
            return True
        return False

    def apply(self) -> None:
        @wrap_method(TransformerEncoderLayerBase, "__init__")
        def initialize(original: Any, layer: Any, *args: Any, **kwargs: Any) -> None:
            original(layer, *args, **kwargs)
            layer.can_use_fastpath = False


def _layer_of_zeros() -> Any:
    """The attributes of a layer that the fast path reads; a layer itself would draw its parameters at random."""
    vector, matrix = torch.zeros(2), torch.zeros(2, 2)
    norm = SimpleNamespace(eps=1e-5, weight=vector, bias=vector)
    conditions = {"BT_version": True, "load_to_BT": True, "can_use_fastpath": True}
    conditions |= dict.fromkeys(("training", "ever_training", "return_fc", "cfg_checkpoint_activations"), False)
    return SimpleNamespace(
        **conditions,
        **{"embed_dim": 2, "num_heads": 1, "activation_relu_or_gelu": 1},
        **{"in_proj_weight": torch.zeros(6, 2), "in_proj_bias": torch.zeros(6)},
        **{"out_proj_weight": matrix, "out_proj_bias": vector},
        **{"fc1_weight": matrix, "fc1_bias": vector, "fc2_weight": matrix, "fc2_bias": vector},
        **{"self_attn_layer_norm": norm, "final_layer_norm": norm},
    )
