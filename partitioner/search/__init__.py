"""Automatic sharding: an integer program chooses which mesh axes shard which dimensions.

`building` groups the ops of a program that share a sharding of their factors (`model`), `ties` finds groups that
repeat, `integer` solves. Costs are given as values: nothing here depends on machines or networks.
"""
