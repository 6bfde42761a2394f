"""What the ranks of one program tell each other, and the announcement that follows; without the library that they
communicate with."""
