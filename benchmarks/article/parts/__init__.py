"""The parts of the laboratory, a module each: what is measured, what is told of it, and what is drawn."""
