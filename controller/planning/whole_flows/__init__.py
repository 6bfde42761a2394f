"""Routes of whole flows where no closed form is optimal, or where the closed form would move too many flows.

``search`` runs a local search first, and then ``cpsat``, which can prove that no routing is better.
"""
