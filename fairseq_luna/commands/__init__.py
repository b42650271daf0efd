"""The commands of ``fairseq-luna``, a module each.

A module's docstring is what ``--help`` shows. ``add_flags(parser)`` adds its flags, ``add_chosen_flags(parser, given)``
those that depend on the given arguments, where there are any, and ``run(args)`` does the work. ``check_given(given)``
comes first where that takes an import of torch.
Importing a module imports neither torch nor fairseq, which take seconds.
"""

# In the order in which a user needs them.
COMMANDS = ("info", "prepare", "translate", "score", "average", "convert", "export")
