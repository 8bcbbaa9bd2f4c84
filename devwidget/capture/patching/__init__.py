"""Replace parts of torch for a while: patches, hooks and modes that may overlap and leave in any order."""
