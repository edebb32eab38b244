"""Assign symbols to sessions and multicast groups by subscriptions (TH): model, costs, clustering, stored plans.

Imports `native`, `plots` and `extras`. Imported by `node`, `pipeline` (plans at scale) and `cli`.
"""
