"""Audits of tape equality, fairness of release and service, and timeliness of floors. `base` defines an audit."""
