"""The table: every statement on it, a file a verb. Knows no process."""
