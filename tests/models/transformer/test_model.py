"""What every encoder-decoder with its own self-attentions does."""

import pytest

from fairseq_luna.usage_error import UsageError
from support import build_model


@pytest.mark.parametrize(
    ("family", "shared"), [("fastformer", "fastformer_share_layers"), ("block", "share_block_layers")]
)
def test_shared_projections_are_not_quantised_in_one_layer_alone(family, shared):
    with pytest.raises(UsageError, match=f"--quant-noise-scalar 0.5: cannot go with --{shared.replace('_', '-')}"):
        build_model(family, **{shared: True}, quant_noise_scalar=0.5)
