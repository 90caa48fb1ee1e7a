"""Names of elastic jobs that scripts import from here."""
