"""The commands of ``fairseq-luna``, a module each.

A module's docstring is what ``--help`` shows. ``add_flags(parser)`` adds its flags, and ``run(args)`` does the work and
returns the exit status or None. Importing a module imports neither torch nor fairseq, which take seconds.
"""

# In the order in which a user needs them.
COMMANDS = ("info", "translate", "average")
