"""A job's way, in the child: claim -> run -> finish."""
