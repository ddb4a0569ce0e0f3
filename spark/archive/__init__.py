"""Days of tables in files: written, verified and marked by `archive`, and read again in the place of the database's."""
