"""What every edge needs of HTTP: who may come in, and what the application shares with its routes."""
