"""A child's way, in the parent: fork -> ready -> busy -> reap -> restart."""
