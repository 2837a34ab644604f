"""Judges finished work with the gate, checks and a judge model, and combines their results into one verdict.

They run in this order. The first failure that decides the verdict ends it, so a model is asked only if criteria are
left to decide. `verdict.Judging` is where it begins.
"""
