"""Routing Transformer's attention (TACL 2021, arXiv 2003.05997): softmax attention within clusters of queries.

With m_c the centroids of a head, k = q / |q|, and S_c the w steps with the largest products k_j m_c::

    y_i = mean over the clusters c with i in S_c of softmax_j(q_i k_j / sqrt(D)) v_j, over j in S_c without i
    m_c <- 0.999 m_c + 0.001 n_c                  n_c: the sum of the keys nearest to m_c in a batch, normed

In a decoder, with c_i the nearest of the first 1 + i / w centroids, and S_i the step i and the latest steps before it
whose c_j is c_i, together at most w::

    y_i = softmax_j(q_i k_j / sqrt(D)) v_j, over j in S_i

Parameters: ``q_proj``, which keys share, ``v_proj`` and ``out_proj``; ``centroids`` is a buffer. Differences from the
paper are in the declaration at the end of the file.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, distributed

from ..ops.dtypes import accumulation_dtype
from ..ops.padding import Padding
from ..ops.routing_attention import (
    ClusterCache,
    cluster_sums,
    routing_attention,
    routing_causal_attention,
    routing_causal_attention_step,
)
from ..published import Difference, Published
from .argument_checks import check_positive
from .attention import SelfAttention
from .conversion import Rule, Rules
from .declaration import Attention, Flag, Traits

DECAY = 0.999  # of the moving average of the centroids
CLUSTERS, CAUSAL_CLUSTERS = 64, 8
SUMS = ("batch_sums", "update_sums")


class RoutingAttention(SelfAttention):
    """Attention to the steps of a step's own clusters, O(n w).

    Each training batch records the sums of its clusters; before the next update fairseq calls
    :meth:`set_num_updates`, which moves the centroids. So a forward pass reads the centroids that earlier updates made:
    no step learns of later steps from them. They stay the same within an update, also if activations are computed
    again, and are the same in all processes. A training loop other than fairseq's must call it too, or the centroids
    never move. Checkpoints have the sums, so that a training in one process resumes exactly; of several processes they
    have the sums of the first.

    The centroids are in fp32 also where the module is converted to half precision: bf16 and fp16 would round updates
    of 0.1 % to zero. At padding the result is the bias of the output projection.

    The state of a decoder is the latest w members of each cluster. Whole passes and steps of generation choose the same
    clusters but for rounding: a step whose products with two centroids differ by less than the rounding error of its
    query, 0.4 % in bf16, may get the other cluster, and then sees other steps, and later steps do not see it.

    Args:
        window: w, steps of a cluster; in a decoder the steps of its cluster that a step sees.
        clusters: M, the largest number of clusters; None = 64, in a decoder 8, because its state is ``M w`` steps. In
            an encoder a sentence of n steps has ``n / w``, rounded up, and longer sentences than ``M w`` have larger
            clusters. In a decoder the number grows with the position, by one after each w steps.
        options: arguments of :class:`.SelfAttention`.

    Raises:
        UsageError: if ``window`` or ``clusters`` is below 1, or the base class refuses an option.
    """

    State = ClusterCache
    centroids: Tensor
    batch_sums: Tensor  # of the latest batch
    update_sums: Tensor  # of the batches before it in the same update
    successor_rules: ClassVar[Rules] = {"k_proj": Rule(("q_proj",))}

    def __init__(self, *, window: int = 64, clusters: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        clusters = (CAUSAL_CLUSTERS if self.causal else CLUSTERS) if clusters is None else clusters
        check_positive(window=window, clusters=clusters)
        self.window, self.clusters = window, clusters
        self.updates: int | None = None  # the last value passed to set_num_updates
        self.q_proj, self.v_proj = self.linear.input_projection(), self.linear.input_projection()
        self.out_proj = self.linear.output_projection()
        self.register_buffer("centroids", F.normalize(torch.randn(self.num_heads, clusters, self.head_size), dim=-1))
        self.register_buffer("batch_sums", torch.zeros_like(self.centroids))
        self.register_buffer("update_sums", torch.zeros_like(self.centroids))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RoutingAttention":
        """Convert or move the module; the moving average stays in fp32 where the rest is in half precision."""
        before = {name: getattr(self, name) for name in ("centroids", *SUMS)}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            after = getattr(self, name)
            dtype = accumulation_dtype(after)
            if after.dtype != dtype:
                setattr(self, name, after.to(dtype) if buffer.is_meta else buffer.to(after.device, dtype))
        return self

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        q, v = self.project_heads(self.q_proj, x), self.project_heads(self.v_proj, x)
        if self.training:
            sums = cluster_sums(q, self.centroids, window=self.window, padding=padding, causal=self.causal)
            self.batch_sums.copy_(sums)
        attention = routing_causal_attention if self.causal else routing_attention
        y = attention(q, v, self.centroids, window=self.window, **self.op_options(padding))
        return self.project_output(y)

    def attend_step(self, x: Tensor, padding: Padding, state: ClusterCache | None) -> tuple[Tensor, ClusterCache]:
        q, v = self.project_heads(self.q_proj, x), self.project_heads(self.v_proj, x)
        y, state = routing_causal_attention_step(
            q, v, self.centroids, state, window=self.window, **self.op_options(padding)
        )
        return self.project_output(y), state

    @torch.no_grad()
    def set_num_updates(self, updates: int) -> None:
        """Move the centroids towards the clusters of the latest batch; called by fairseq before every batch.

        The batches of one update (``--update-freq``) have the same centroids: only a new number of ``updates`` moves
        them, by the sums of all batches of the update before.
        """
        if not self.training:
            return
        self.update_sums += self.batch_sums
        self.batch_sums.zero_()
        if updates == self.updates:
            return
        self.updates, sums = updates, self.update_sums
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(sums)
        means = torch.where(sums.any(-1, keepdim=True), F.normalize(sums, dim=-1), self.centroids)
        self.centroids.lerp_(means, 1 - DECAY)
        sums.zero_()

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Rename parameters of older checkpoints, and add the sums that they lack; fairseq calls it."""
        super().upgrade_state_dict_named(state_dict, name)
        if f"{name}.centroids" in state_dict:
            for each in SUMS:
                state_dict.setdefault(f"{name}.{each}", torch.zeros_like(getattr(self, each)))


ATTENTIONS = (
    Attention(
        name="routing",
        published=Published(
            "arXiv 2003.05997; Phil Wang's routing-transformer with shared queries and keys",
            (
                Difference(
                    "heads",
                    "all have clusters",
                    "half of them see a local window",
                    "one attention for all heads; the convolution, `--attention-kernel-size`, reads the neighbors",
                ),
                Difference(
                    "queries and keys",
                    "share a projection, and keys have length 1",
                    "in the paper both are normed, and shared in decoders; in the code as here",
                    "one set of clusters for both",
                ),
                Difference(
                    "number of clusters",
                    "n / 64 for a sentence of n tokens, 64 at most (`--attention-window`, `--num-clusters`); in a "
                    "decoder n / 64 after n tokens, 8 at most",
                    "of the longest sequence for all; sqrt(n) in the paper",
                    "a sentence has the same result in every batch, and a short one is one cluster",
                ),
                Difference(
                    "centroids at the start",
                    "random directions",
                    "k-means of the first batch, in the code",
                    "the start does not depend on the order of the data",
                ),
                Difference(
                    "moving average",
                    "once for each update, of the batches of the update before it, in fp32",
                    "after each backward pass, in the code",
                    "the same in all processes, and with `--checkpoint-activations`",
                ),
                Difference(
                    "loss",
                    "of the translation alone",
                    "a term that draws queries to their centroids, 1e-4 of it, in the code",
                    "fairseq's criterions do not ask a model for losses",
                ),
                Difference(
                    "clusters of a decoder",
                    "a step is in the nearest one, and sees its latest w members, itself included",
                    "the w nearest steps of each centroid, as in an encoder, with a causal mask; a step does not see "
                    "itself unless it is alone",
                    "which steps are the nearest ones would depend on later steps",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2003.05997",
        encoder=RoutingAttention,
        decoder=partial(RoutingAttention, causal=True),
        source="its keys are its queries",
        traits=Traits(
            training_time="n(w + M)D; encoder up to Mw steps, M clusters",
            decoder_state="Mw keys and values",
            sees_every_step=False,
            quadratic=True,  # in an encoder beyond M w steps, whose clusters grow
            continuous=False,
        ),
        flags=(
            Flag(
                name="attention_window",
                argument="window",
                help="steps of a cluster; in a decoder the latest steps of its cluster that a step sees",
                default=64,
                minimum=1,
            ),
            Flag(
                name="num_clusters",
                argument="clusters",
                help="the largest number of clusters of a sentence",
                default=None,
                default_text="64, in a decoder 8",
                minimum=1,
            ),
        ),
    ),
)
