"""An encoder's output, and the rows of it that a beam search selects, without copies.

fairseq copies the output for each beam, and again at every step. But a decoder reads it at the first step only: then it
selects the rows. Where they are the beams of a search, it need not: each beam reads the row of its sentence.
"""

import torch
from torch import Tensor

EncoderOut = dict[str, list[Tensor]]
# What decoders read, and the dimension of the batch.
READ_BY_DECODERS = {"encoder_out": 1, "encoder_padding_mask": 0, "packed_out": 1, "packed_padding_mask": 0}


def encoder_out(
    x: Tensor, embedding: Tensor, masks: list[Tensor], lengths: Tensor, states: list[Tensor], **more: list[Tensor]
) -> EncoderOut:
    """The dictionary of fairseq's encoders, with ``more``.

    Args:
        x: the output, ``(T, B, C)``.
        embedding: ``(B, T, C)``.
        masks: the padding mask, ``(B, T)`` bool, True = padding, or nothing if nothing is padded.
        lengths: ``(B,)``.
        states: the input and output of each layer, or nothing.
    """
    return {
        "encoder_out": [x],
        "encoder_padding_mask": masks,
        "encoder_embedding": [embedding],
        "encoder_states": states,
        "fc_results": [],
        "src_tokens": [],
        "src_lengths": [lengths.to(torch.int32).reshape(-1, 1)],
        **more,
    }


def reordered(encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
    """``encoder_out`` with the numbers of the selected rows, as "rows"; for an encoder's ``reorder_encoder_out``."""
    rows = encoder_out["rows"][0].index_select(0, new_order) if "rows" in encoder_out else new_order
    return {**encoder_out, "rows": [rows]}


def selected_rows(encoder_out: EncoderOut) -> EncoderOut:
    """What decoders read of ``encoder_out``, with a row for each selected one.

    If every sentence was selected the same number of times, one after the other, each has a single row.
    """
    read = {name: encoder_out.get(name, []) for name in READ_BY_DECODERS}
    if "rows" not in encoder_out:
        return read
    [rows] = encoder_out["rows"]
    sentences = encoder_out["encoder_out"][0].shape[1]
    beams, others = divmod(rows.shape[0], sentences or 1)
    if others == 0 and not rows.ne(torch.arange(beams * sentences, device=rows.device) // beams).any():
        return read
    return {name: [x.index_select(dim, rows) for x in read[name]] for name, dim in READ_BY_DECODERS.items()}
