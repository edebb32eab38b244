"""Virtual time, network and disks, and the nodes that run in them."""
