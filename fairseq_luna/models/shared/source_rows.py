"""An encoder's output, and the rows of it that a beam search selects, without copies.

fairseq copies the output for each beam, and again at every step. But a decoder reads it at the first step only: then it
selects the rows. Where they are the beams of a search, it need not: each beam reads the row of its sentence.
"""

import torch
from torch import Tensor

from ...ops.padding import Padding

EncoderOut = dict[str, list[Tensor]]
# The entries that decoders read, and the dimension of the batch in each.
READ_BY_DECODERS = {"encoder_out": 1, "encoder_padding_mask": 0, "packed_out": 1, "packed_padding_mask": 0}


def encoder_out(
    x: Tensor, embedding: Tensor, padding: Padding, states: list[Tensor], **more: list[Tensor]
) -> EncoderOut:
    """The dictionary of fairseq's encoders, with ``more``.

    Args:
        x: the output, ``(T, B, C)``.
        embedding: ``(B, T, C)``.
        padding: of the source.
        states: the input and output of each layer, or nothing.
    """
    steps, batch = x.shape[:2]
    if padding.mask is None:
        lengths = torch.full((batch,), steps, dtype=torch.int32, device=x.device)
    else:
        lengths = padding.lengths.to(torch.int32)
    return {
        "encoder_out": [x],
        "encoder_padding_mask": masks_of(padding),
        "encoder_embedding": [embedding],
        "encoder_states": states,
        "fc_results": [],
        "src_tokens": [],
        "src_lengths": [lengths.reshape(-1, 1)],
        **more,
    }


def masks_of(padding: Padding) -> list[Tensor]:
    """The mask in a list, which is empty without padding."""
    return [] if padding.mask is None else [padding.mask]


def padding_from(masks: list[Tensor]) -> Padding:
    """The inverse of :func:`masks_of`."""
    return Padding(masks[0] if masks else None)


def reordered(encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
    """``encoder_out`` with the indices of the selected rows in "rows"; for an encoder's ``reorder_encoder_out``."""
    rows = encoder_out["rows"][0].index_select(0, new_order) if "rows" in encoder_out else new_order
    return {**encoder_out, "rows": [rows]}


def selected_rows(encoder_out: EncoderOut) -> EncoderOut:
    """The tensors of ``encoder_out`` that decoders read, with a row for each selected row.

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
