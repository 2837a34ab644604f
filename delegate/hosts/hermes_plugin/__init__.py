"""The plugin as a folder, for `$HERMES_HOME/plugins/delegate-task`. Its code is in the package, beside Hermes."""

from delegate.hosts.hermes import register as register
