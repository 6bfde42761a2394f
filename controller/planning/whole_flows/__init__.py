"""Routes of whole flows where no closed form is optimal, or where the closed form would move too many flows.

``search`` runs ``local_search`` first, on the loads that ``capped_loads`` keeps, and then ``cpsat``, which can prove
that no routing is better.
"""
