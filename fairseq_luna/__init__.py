"""What ``--user-dir`` imports: patches fairseq and registers models, optimizers and schedulers.

Without a working fairseq it only says so, because ``fairseq_luna.ops`` and ``fairseq_luna.optim.apollo`` need
torch alone.
"""

import importlib
import logging

from fairseq_luna import environment, usage_error

__version__ = "0.1.0"

_REGISTERING = ("models", "optim.fairseq_apollo", "optim.milestone_lr")

_problem = environment.fairseq_problem()
if _problem is None:
    from fairseq_luna import compat
    from fairseq_luna.compat import one_line

    compat.apply_patches()
    usage_error.report_in_one_line(one_line.in_one_line)
    for _module in _REGISTERING:
        importlib.import_module(f"fairseq_luna.{_module}")
else:
    logging.getLogger(__name__).warning(_problem)
