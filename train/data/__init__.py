"""Decision data with our own text: seeded, split by template and by entity, hashed."""
