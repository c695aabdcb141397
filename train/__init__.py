"""How the demonstration checkpoint is made. Not part of the package: needs torch, Transformers and PEFT."""
