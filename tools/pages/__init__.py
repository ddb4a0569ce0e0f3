"""The admin pages, measured beside many jobs, and their pictures for README.md."""
