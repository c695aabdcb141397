"""The A/B measurement harness: declared plans in, ledgers with their evidence out."""
