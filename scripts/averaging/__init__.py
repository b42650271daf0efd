"""Their arithmetic mean."""
