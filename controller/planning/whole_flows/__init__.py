"""Routes of whole flows where no closed form is optimal, or where it would move too many of them.

``search`` runs ``local_search`` first, on the loads that ``capped_loads`` keeps, and then ``cpsat``, which can prove
that no routing is better.
"""
