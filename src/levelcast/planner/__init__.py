"""From symbols and subscriptions to sessions and multicast groups (TH): model, costs, clustering, plans on disk.

Imports `native`, `plots` and `extras`. Imported by `node`, `pipeline` (plans at scale) and `cli`.
"""
