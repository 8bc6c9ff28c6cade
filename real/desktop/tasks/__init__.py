"""Tasks for our desktop image, in OSWorld's schema."""
