"""The rows of an encoder's output that a beam search selects, without copies of it.

fairseq copies the output for each beam, and again at every step. But a decoder reads it at the first step only: then it
selects the rows. Where they are the beams of a search, it need not: each beam reads the row of its sentence.
"""

import torch
from torch import Tensor

EncoderOut = dict[str, list[Tensor]]
# What decoders read, and the dimension of the batch.
READ_BY_DECODERS = {"encoder_out": 1, "encoder_padding_mask": 0, "packed_out": 1, "packed_padding_mask": 0}


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
