"""The naive designs, a file each, and what their jobs do."""
