"""What the tests stand on: servers, databases, real supervisors, and waiting for conditions."""
