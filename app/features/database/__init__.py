"""What holds the database up, shown."""
