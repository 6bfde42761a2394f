"""Routes of flows that may be split: the smallest slowdowns, with few subflows.

``search`` divides a problem into parts that share no link, and plans each part. The fluid optimum comes from ``lp``, on
classes of flows (``commodities``); ``dividing`` turns it into subflows. ``leaf_spine`` has closed forms for equal
flows.
"""
