"""Subcommands of `delegate`: each is the function of this name in the module of this name."""
