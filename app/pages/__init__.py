"""How the admin pages are made and served."""
