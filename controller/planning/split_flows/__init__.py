"""Routes of flows that may be split: the smallest slowdowns, with few subflows.

``by_part`` divides a problem into parts that share no link, and ``search`` plans a part. The fluid optimum comes from
``lp``, on classes of flows (``commodities``); ``dividing`` and ``shares`` turn it into subflows. ``peeling`` has a
closed form for equal flows.
"""
