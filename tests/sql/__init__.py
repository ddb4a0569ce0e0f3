"""What SQL users write and read, from their side."""
