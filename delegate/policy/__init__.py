"""Decides whether a child may do what it is about to do: alone, after a person has approved it, or not at all.

`rules` has the setting `policy`, `decide` the pure function from a call to allow, ask or deny, and `approvals` what a
person is asked and what counts as a yes.
"""
