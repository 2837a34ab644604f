"""What an operator decides.

`settings` has all settings, and `trust` which files of settings count in full. `rules` has the setting `policy`,
`decide` the pure function from a call of a child to allow, ask or deny, and `approvals` what a person is asked and what
counts as a yes.
"""
