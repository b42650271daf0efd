"""Routing Transformer's attention (TACL 2021, arXiv 2003.05997): softmax attention within clusters of queries.

With m_c the centroids of a head, k = q / |q|, and S_c the w steps with the largest products k_j m_c::

    y_i = mean over the clusters c with i in S_c of softmax_j(q_i k_j / sqrt(D)) v_j, over j in S_c without i
    m_c <- 0.999 m_c + 0.001 n_c                  n_c: the sum of the keys nearest to m_c in a batch, normed

Parameters: ``q_proj``, which keys share, ``v_proj`` and ``out_proj``; ``centroids`` is a buffer. Differences from the
paper are in the declaration at the end of the file.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, distributed

from ..ops.padding import Padding
from ..ops.routing_attention import cluster_sums, routing_attention
from ..published import Difference, Published
from .attention import SelfAttention
from .checks import check_positive
from .conversion import Rule, Rules
from .declaration import Attention, Flag, Traits

DECAY = 0.999  # of the moving average of the centroids


class RoutingAttention(SelfAttention):
    """An encoder's attention to the steps of the own clusters, O(n w).

    A batch of training notes the sums of its clusters; before the next update :meth:`set_num_updates`, which fairseq
    calls, moves the centroids by them. So the centroids stay the same within an update, also if activations are
    computed again, and are the same in all processes. Another training loop calls it too, or keeps the first centroids.
    At padding the result is the bias of the output projection.

    Args:
        window: w, steps of a cluster.
        clusters: M, the largest number of clusters; a sentence of n steps has ``n / w``, rounded up. Longer sentences
            than ``M w`` have larger clusters.
        options: arguments of :class:`.SelfAttention`.

    Raises:
        UsageError: if ``window`` or ``clusters`` is below 1, or the base class refuses an option.
    """

    centroids: Tensor
    batch_sums: Tensor
    successor_rules: ClassVar[Rules] = {"k_proj": Rule(("q_proj",))}

    def __init__(self, *, window: int = 64, clusters: int = 64, **options: Any) -> None:
        super().__init__(**options)
        check_positive(window=window, clusters=clusters)
        self.window, self.clusters = window, clusters
        self.q_proj, self.v_proj = self.linear.input_projection(), self.linear.input_projection()
        self.out_proj = self.linear.output_projection()
        self.register_buffer("centroids", F.normalize(torch.randn(self.num_heads, clusters, self.head_size), dim=-1))
        self.register_buffer("batch_sums", torch.zeros_like(self.centroids), persistent=False)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        q, v = self.project_heads(self.q_proj, x), self.project_heads(self.v_proj, x)
        if self.training:
            sums = cluster_sums(q, self.centroids, window=self.window, padding=padding)
            self.batch_sums.copy_(sums)
        y = routing_attention(q, v, self.centroids, window=self.window, **self.op_options(padding))
        return self.project_output(y)

    @torch.no_grad()
    def set_num_updates(self, updates: int) -> None:
        """Move the centroids towards the clusters of the latest batch; called by fairseq before every update."""
        if not self.training:
            return
        sums = self.batch_sums
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(sums)
        means = torch.where(sums.any(-1, keepdim=True), F.normalize(sums, dim=-1), self.centroids)
        self.centroids.lerp_(means, 1 - DECAY)
        self.batch_sums.zero_()


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
                    "one attention for all heads; the convolution, `--attention-kernel-size`, reads the neighbours",
                ),
                Difference(
                    "queries and keys",
                    "share a projection, and keys have length 1",
                    "in the paper both are normed, and shared in decoders; in the code as here",
                    "one set of clusters for both",
                ),
                Difference(
                    "number of clusters",
                    "n / 64 for a sentence of n words, 64 at most (`--attention-window`, `--num-clusters`)",
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
                    "once for each update, of the last batch before it",
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
                    "place",
                    "encoder",
                    "decoder and encoder",
                    "the members of a cluster are the largest of all steps, so later steps would decide",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2003.05997",
        encoder=RoutingAttention,
        decoder="the members of its clusters are chosen among all steps, later ones too",
        source="its keys are its queries",
        traits=Traits(
            training_time="n(w + M)D up to Mw steps, M clusters",
            decoder_state="",
            sees_every_step=False,
            quadratic=True,  # beyond M w steps, whose clusters grow
            continuous=False,
        ),
        flags=(
            Flag(
                name="attention_window",
                argument="window",
                help="steps of a cluster",
                default=64,
                minimum=1,
            ),
            Flag(
                name="num_clusters",
                argument="clusters",
                help="the largest number of clusters of a sentence",
                default=64,
                minimum=1,
            ),
        ),
    ),
)
