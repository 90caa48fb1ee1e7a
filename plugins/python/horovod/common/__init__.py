"""Names that scripts import from here; each says what it is in the module that has it."""
