"""Plan regions, sets of sites with common lines, from delays between cities."""
