"""What keeps a part from being measured on this machine."""


class Missing(Exception):
    """Something that is not installed here, or not allowed. Its text goes into the report."""
