"""The published formats, each a JSON Schema, and the reading of those that a person writes."""
