"""Simulation of chain multicast (MR): nodes with verification time, members that lie, mutations."""
