"""The HTTP server of openjev: the System One wire format in front of a DecisionModel."""
