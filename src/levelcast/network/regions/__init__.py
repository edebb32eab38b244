"""Regions: which sites share lines, computed from delays between cities."""
