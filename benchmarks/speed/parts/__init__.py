"""What is measured, a module each: `measure` and what it found."""
