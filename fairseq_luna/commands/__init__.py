"""Commands of ``fairseq-luna``, one module each.

The docstring of a module is the description that ``--help`` shows. ``add_flags(parser)`` adds the command's flags, and
``run(args)`` does the work. A command may also have ``add_chosen_flags(parser, argv)``, for flags that depend on the
arguments, and ``check_argv(argv)``, for checks before torch is imported for that.
Importing one of these modules imports neither torch nor fairseq, which takes seconds.
"""

# In the order in which a user needs them.
COMMANDS = ("prepare", "translate", "score", "average", "convert", "export", "info")
