"""The plugin as a directory, for `$HERMES_HOME/plugins/delegate-task`. Its code is in the installed package."""

from delegate.hosts.hermes import register as register
