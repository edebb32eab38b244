"""From symbols and subscriptions to sessions and multicast groups (TH): model, costs, clustering, plans on disk.

Imports the kernel; the edge sends by plans, `levelcast plan` makes them, the pipeline makes them at scale.
"""
