"""Attention algorithms on tensors, in plain torch, one folder each.

``naive.py`` is the specification: the formula, as in the paper. ``chunked.py`` or ``fused.py`` computes the same
function for training, ``recurrent.py`` one step at a time for generation. ``shared.py`` has what several of them need.
The package itself never imports a ``naive.py``.
"""
