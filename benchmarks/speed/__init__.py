"""How quick Fencepost is beside bare SQL and other queues, in one run: `make bench`."""
