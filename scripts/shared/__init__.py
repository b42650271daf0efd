"""Shared by several commands: arguments and errors, fairseq's commands, files, pictures."""
