"""The admin pages: templates, sessions, permissions and live updates."""
