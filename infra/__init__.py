"""The outermost room: the `remask` command, set-up and launchers."""
