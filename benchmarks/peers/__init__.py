"""What the benchmarks share: which queues are compared, how they are installed, set up and started."""
