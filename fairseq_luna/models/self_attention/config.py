"""What these families cannot do of fairseq's transformer's flags."""

from ..checks import REFUSED

SELF_ATTENTION_REFUSED = {
    **REFUSED,
    "cross_self_attention": (False, "this decoder's self-attention cannot hold the source too; leave it out"),
}
