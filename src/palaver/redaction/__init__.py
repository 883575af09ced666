"""Finding and removing secrets and personal data in text. Pure."""
